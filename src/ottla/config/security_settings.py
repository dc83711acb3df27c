"""The settings of security: TLS, SASL, authorisation. Most may be given for one listener: see `listener_security`."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import Kind, Update, setting

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
SERVED_MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TlsSettings:
    """TLS, for listeners that speak it."""

    ssl_keystore_type: str = setting(
        Kind.STRING,
        "JKS",
        "The format of the key store: PEM or PKCS12. JKS, Kafka's default, is not read.",
        update=Update.PER_BROKER,
    )
    ssl_keystore_location: str | None = setting(
        Kind.STRING, None, "The file with the broker's key and certificates.", update=Update.PER_BROKER
    )
    ssl_keystore_password: str | None = setting(
        Kind.PASSWORD, None, "The password of that file.", update=Update.PER_BROKER
    )
    ssl_keystore_key: str | None = setting(
        Kind.PASSWORD, None, "The broker's private key itself, as PEM.", update=Update.PER_BROKER
    )
    ssl_keystore_certificate_chain: str | None = setting(
        Kind.PASSWORD, None, "The broker's certificates themselves, as PEM.", update=Update.PER_BROKER
    )
    ssl_key_password: str | None = setting(
        Kind.PASSWORD, None, "The password of the private key.", update=Update.PER_BROKER
    )
    ssl_truststore_type: str = setting(
        Kind.STRING,
        "JKS",
        "The format of the trust store: PEM or PKCS12. JKS, Kafka's default, is not read.",
        update=Update.PER_BROKER,
    )
    ssl_truststore_location: str | None = setting(
        Kind.STRING, None, "The file with the certificates to trust.", update=Update.PER_BROKER
    )
    ssl_truststore_password: str | None = setting(
        Kind.PASSWORD, None, "The password of that file.", update=Update.PER_BROKER
    )
    ssl_truststore_certificates: str | None = setting(
        Kind.PASSWORD, None, "The certificates to trust themselves, as PEM.", update=Update.PER_BROKER
    )
    ssl_client_auth: str = setting(
        Kind.STRING,
        "none",
        "Whether a client must present a certificate, may do so, or is not asked. For SASL_SSL only with the prefix of "
        "its listener.",
        choices=("required", "requested", "none"),
        update=Update.PER_BROKER,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        Kind.LIST, ("TLSv1.2", "TLSv1.3"), "The versions of TLS that may be used.", update=Update.PER_BROKER
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        Kind.LIST, (), "The cipher suites that may be used, by their names in OpenSSL.", update=Update.PER_BROKER
    )
    ssl_endpoint_identification_algorithm: str = setting(
        Kind.STRING,
        "https",
        "Whether the broker compares the name of a broker that it connects to with its certificate; empty: no.",
        update=Update.PER_BROKER,
    )
    ssl_principal_mapping_rules: str = setting(
        Kind.STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes that of a user: `RULE:pattern/replacement/[L|U]`, or DEFAULT "
        "for the whole name; the first rule that matches counts.",
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class SaslSettings:
    """How clients and other brokers log in."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        Kind.LIST,
        ("GSSAPI",),
        "The mechanisms by which clients may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. GSSAPI, "
        "Kafka's default, is not served.",
        update=Update.PER_BROKER,
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        Kind.STRING, "GSSAPI", "The mechanism by which brokers log in to each other.", update=Update.PER_BROKER
    )
    sasl_jaas_config: str | None = setting(
        Kind.PASSWORD,
        None,
        "A login in the format of JAAS. For listeners it counts only with the prefix "
        "`listener.name.<listener>.<mechanism>.`.",
        update=Update.PER_BROKER,
    )
    sasl_server_max_receive_size: int = setting(
        Kind.INT, 524_288, "The largest request of a client that has not logged in.", minimum=1
    )
    connections_max_reauth_ms: int = setting(
        Kind.LONG, 0, "After this time a client must log in again on its connection. 0: never.", minimum=0
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class OAuthSettings:
    """Tokens of OAUTHBEARER. None of them changes while a broker runs: whoever may change the keys may be anybody."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        Kind.STRING,
        None,
        "Where the public keys are by which tokens are verified: a JWKS at an https, http or file URL. Without it "
        "OAUTHBEARER is not served.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        Kind.LONG, 3_600_000, "How often the keys are fetched again.", minimum=1
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        Kind.LONG,
        100,
        "The first pause between two fetches for the sake of a token that names an unknown key; it doubles each time.",
        minimum=1,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        Kind.LONG, 10_000, "The longest of these pauses.", minimum=1
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        Kind.LIST, (), "The audiences for which tokens are meant: one of them must be in the token."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        Kind.STRING, None, "Who issues the tokens; others are refused."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        Kind.INT, 30, "How far the clock of the issuer may be off.", minimum=0
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        Kind.STRING, "sub", "The claim of a token that holds the name of the user."
    )
    sasl_server_callback_handler_class: str | None = setting(
        Kind.CLASS,
        None,
        "With the prefix of a listener and of OAUTHBEARER: Kafka's handler that verifies tokens. No other class is "
        "accepted, and none is loaded.",
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class DelegationTokenSettings:
    """Delegation tokens."""

    delegation_token_secret_key: str | None = setting(
        Kind.PASSWORD,
        None,
        "The key that makes the secrets of delegation tokens, the same on all brokers. Without it there are none.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        Kind.LONG, 604_800_000, "How long a token lasts at most, however often it is renewed.", minimum=1
    )
    delegation_token_expiry_time_ms: int = setting(
        Kind.LONG, 86_400_000, "How long a token lasts until it must be renewed.", minimum=1
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        Kind.LONG, 3_600_000, "How often tokens that have expired are removed.", minimum=1
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class PasswordEncoderSettings:
    """How passwords among the dynamic settings are stored."""

    password_encoder_secret: str | None = setting(
        Kind.PASSWORD,
        None,
        "The secret with which they are encrypted, the same on all brokers. Without it no password can be changed "
        "while a broker runs.",
    )
    password_encoder_old_secret: str | None = setting(
        Kind.PASSWORD, None, "The secret before: what was encrypted with it can still be read."
    )
    password_encoder_keyfactory_algorithm: str | None = setting(
        Kind.STRING, None, "How the key is made of the secret (default: PBKDF2WithHmacSHA512)."
    )
    password_encoder_cipher_algorithm: str = setting(Kind.STRING, "AES/CBC/PKCS5Padding", "The cipher; the only one.")
    password_encoder_key_length: int = setting(Kind.INT, 128, "The length of the key in bits.", minimum=8)
    password_encoder_iterations: int = setting(
        Kind.INT, 4096, "How often the secret is hashed to make the key.", minimum=1024
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AuthorizationSettings:
    """Who may do what."""

    authorizer_class_name: str = setting(
        Kind.STRING,
        "",
        "Whether requests are checked against ACLs: any of the names of Kafka's authorizers turns the checks on; "
        "empty: everybody may do everything.",
    )
    super_users: str = setting(
        Kind.STRING, "", "Users who may do everything, separated by semicolons: `User:admin;User:CN=broker,O=x`."
    )
    allow_everyone_if_no_acl_found: bool = setting(
        Kind.BOOLEAN, False, "Whether a resource without any ACL is open to everybody."
    )
