"""The settings of security: TLS, SASL, authorisation. Most may be given for one listener: see `listener_security`."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import Kind, Update, setting

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
SERVED_MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)


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
        "The mechanisms by which clients may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. GSSAPI, Kafka's default, is "
        "not served.",
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
