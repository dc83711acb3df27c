"""Every weakness that brokers of this kind are known for has a test here that would find it.

By the name under which it was published, or by its class where it has none: the tests, as file and function.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
RIGHTS = "unit/broker/test_rights.py"
LOGINS = "unit/broker/test_sasl_authenticator.py"
JAAS_MODULES = "unit/config/test_jaas.py::test_cve_2023_25194_2025_27818_2025_27819_no_other_module_is_accepted"
BOMBS = "unit/records/test_compression.py::test_a_bomb_is_refused_within_bounded_memory"
DAMAGED_STREAMS = "fuzz/test_records_decoders.py::test_damaged_streams_are_refused_or_decompressed_within_the_cap"

WEAKNESSES: dict[str, tuple[str, ...]] = {
    "CVE-2017-12610": (
        f"{LOGINS}::test_cve_2017_12610_a_login_with_the_name_of_another",
        "unit/security/test_plain.py::test_cve_2017_12610_another_authorization_id",
        "unit/security/test_scram.py::test_cve_2017_12610_nobody_becomes_another_by_the_authorization_id",
    ),
    "CVE-2018-1288": (
        f"{RIGHTS}::test_cve_2018_1288_nobody_poses_as_a_follower",
        "cluster/test_secured.py::test_a_user_has_the_rights_that_were_given_and_cannot_pose_as_a_replica",
    ),
    "CVE-2018-17196": (f"{RIGHTS}::test_cve_2018_17196_records_of_a_transaction_need_a_right_on_its_id",),
    "CVE-2019-12399": ("broker/test_no_secret_is_shown.py::test_no_secret_is_shown",),
    "CVE-2021-38153": ("unit/security/test_constant_time.py::test_no_secret_is_compared_by_an_operator",),
    "CVE-2022-34917": (
        f"{LOGINS}::test_cve_2022_34917_a_frame_before_the_login_is_small_and_costs_nothing_before_it_is_there",
        f"{LOGINS}::test_cve_2022_34917_and_2026_111115_what_a_frame_declares_before_the_login_takes_no_memory",
    ),
    "CVE-2023-25194": (JAAS_MODULES,),
    "CVE-2025-27818": (JAAS_MODULES,),
    "CVE-2025-27819": (JAAS_MODULES,),
    "CVE-2023-34455": (BOMBS, DAMAGED_STREAMS),
    "CVE-2023-43642": (BOMBS, DAMAGED_STREAMS),
    "CVE-2023-50976": (
        f"{RIGHTS}::test_without_any_right_every_api_is_refused_and_with_all_of_them_none_is",
        "broker/same_as_kafka/test_rights.py::test_whoever_lacks_one_right_is_answered_as_by_kafka",
    ),
    "CVE-2024-27309": (
        "unit/security/test_authorizer.py::test_cve_2024_27309_what_is_left_after_a_removal_still_decides",
    ),
    "CVE-2024-31141": ("unit/config/test_no_expansion.py::test_cve_2024_31141_no_value_is_expanded",),
    "CVE-2024-56128": (
        "unit/security/test_scram.py::test_cve_2024_56128_the_nonce_of_the_last_message_is_that_of_this_login",
    ),
    "CVE-2025-27817": (
        "unit/broker/test_oauthbearer.py::"
        "test_keys_are_fetched_over_http_and_cve_2025_27817_redirects_are_not_followed",
    ),
    "CVE-2026-33557": (
        "unit/security/test_jwt.py::test_nothing_unverified_is_accepted",
        "unit/security/test_jwt.py::test_the_public_key_is_no_secret_to_sign_with",
        "unit/security/test_jwt.py::test_claims_must_hold",
    ),
    "CVE-2026-110985": ("unit/broker/test_oauthbearer.py::test_cve_2026_110985_without_keys_it_cannot_be_enabled",),
    "CVE-2026-33558": (f"{LOGINS}::test_cve_2026_33558_no_secret_is_in_any_log",),
    "CVE-2026-111073": (
        "broker/test_known_weaknesses.py::test_cve_2026_111073_nobody_sends_compressed_telemetry",
        "chaos/test_bad_input.py::test_decompression_bombs",
    ),
    "CVE-2026-111108": (
        "unit/protocol/test_limits.py::test_arrays_inside_arrays_share_the_bytes_of_the_frame",
        "fuzz/test_protocol_decoders.py::test_hostile_counts_do_not_take_memory",
    ),
    "CVE-2026-111115": (
        f"{LOGINS}::test_cve_2022_34917_and_2026_111115_what_a_frame_declares_before_the_login_takes_no_memory",
        "unit/protocol/test_limits.py::test_tagged_fields_are_limited",
    ),
    "CVE-2026-83525": ("unit/broker/handlers/test_any_request.py::test_every_request_is_answered",),
    "CVE-2026-82266": ("broker/test_known_weaknesses.py::test_cve_2026_82266_nothing_but_the_listeners_listens",),
    "CVE-2026-105931": (f"{RIGHTS}::test_cve_2026_105931_and_105938_lists_of_all_tell_no_more_than_single_questions",),
    "CVE-2026-105938": (f"{RIGHTS}::test_cve_2026_105931_and_105938_lists_of_all_tell_no_more_than_single_questions",),
    "CVE-2026-10142": (
        "unit/client/test_connection.py::test_a_frame_beyond_the_limit_is_refused_before_memory_is_taken",
    ),
    "CVE-2026-10143": (
        "unit/security/test_scram.py::test_cve_2026_10143_a_server_does_not_choose_how_long_its_client_hashes",
    ),
    "KAFKA-13848, KAFKA-9241": (
        f"{LOGINS}::test_kafka_13848_and_9241_a_login_that_was_not_renewed_ends_with_the_next_request",
        "unit/broker/test_open_connections.py::test_remembered_requests_end_with_the_login",
    ),
    "names": (
        f"{RIGHTS}::test_a_missing_topic_and_a_forbidden_one_look_the_same",
        f"{RIGHTS}::test_odd_names_in_rules_are_stored_or_refused_and_never_mean_others",
        f"{LOGINS}::test_names_of_nobody_are_refused_and_break_no_line_of_the_log",
    ),
    "resources": (
        f"{LOGINS}::test_bytes_one_by_one_do_not_keep_a_connection_that_never_logs_in",
        "broker/test_connections.py::test_memory_grows_with_what_came_not_with_what_was_announced",
    ),
}


@pytest.mark.parametrize("weakness", WEAKNESSES)
def test_there_is_a_test_that_would_find_it(weakness: str) -> None:
    for test in WEAKNESSES[weakness]:
        file, _, function = test.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function in names, f"{weakness}: {test} is not there"
