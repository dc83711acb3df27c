"""Being a member of a group, by the classic protocol (`classic`) or by that of KIP-848 (`consumer`).

The machines are pure: requests, answers and the time go in, requests and what to do next come out. `classic_runner` and
`consumer_runner` bring them to a coordinator and call listeners.
"""
