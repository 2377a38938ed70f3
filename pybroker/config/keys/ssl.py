"""TLS: certificates and keys (PEM), protocols, client authentication."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import BOOLEAN, CLASS, LIST, PASSWORD, PER_BROKER, READ_ONLY, STRING
from pybroker.config.validators import ANY, one_of

JAVA_CLASS = "names a Java class"
OPENSSL = "TLS is OpenSSL's"
CLIENT_AUTH = one_of("required", "requested", "none")

KEYS = (
    Key("ssl.protocol",                          STRING,   "TLSv1.3",              ANY,         PER_BROKER,
        "The newest TLS version on offer."),
    Key("ssl.enabled.protocols",                 LIST,     ("TLSv1.2", "TLSv1.3"), ANY,         PER_BROKER,
        "The TLS versions on offer."),
    Key("ssl.cipher.suites",                     LIST,     (),                     ANY,         PER_BROKER,
        "The cipher suites on offer; empty leaves it to the TLS library."),
    Key("ssl.client.auth",                       STRING,   "none",                 CLIENT_AUTH, PER_BROKER,
        "Whether clients must, may or need not show a certificate."),
    Key("ssl.keystore.type",                     STRING,   "JKS",                  ANY,         PER_BROKER,
        "The form of the key store: PEM here; JKS, Kafka's default, only as long as no key store is given."),
    Key("ssl.keystore.location",                 STRING,   None,                   ANY,         PER_BROKER,
        "The PEM file with the private key and its certificates."),
    Key("ssl.keystore.key",                      PASSWORD, None,                   ANY,         PER_BROKER,
        "The private key itself, in PEM."),
    Key("ssl.keystore.certificate.chain",        PASSWORD, None,                   ANY,         PER_BROKER,
        "The certificates of that key, in PEM."),
    Key("ssl.keystore.password",                 PASSWORD, None,                   ANY,         PER_BROKER,
        "The password of a JKS or PKCS12 store.",
        ignored="key stores are PEM; ssl.key.password is the password of the key"),
    Key("ssl.key.password",                      PASSWORD, None,                   ANY,         PER_BROKER,
        "Opens the private key if it is encrypted."),
    Key("ssl.truststore.type",                   STRING,   "JKS",                  ANY,         PER_BROKER,
        "The form of the trust store: PEM here; JKS, Kafka's default, only as long as no trust store is given."),
    Key("ssl.truststore.location",               STRING,   None,                   ANY,         PER_BROKER,
        "The PEM file of the certificates that are trusted."),
    Key("ssl.truststore.certificates",           PASSWORD, None,                   ANY,         PER_BROKER,
        "The trusted certificates themselves, in PEM."),
    Key("ssl.truststore.password",               PASSWORD, None,                   ANY,         PER_BROKER,
        "The password of a JKS or PKCS12 store.", ignored="trust stores are PEM, which has no password"),
    Key("ssl.endpoint.identification.algorithm", STRING,   "https",                ANY,         PER_BROKER,
        "https checks the other side's host name against its certificate; empty does not."),
    Key("ssl.principal.mapping.rules",           STRING,   "DEFAULT",              ANY,         READ_ONLY,
        "Rules that turn a certificate's distinguished name into a user name."),
    Key("ssl.allow.dn.changes",                  BOOLEAN,  False,                  ANY,         READ_ONLY,
        "Whether a key store loaded at run time may name another subject."),
    Key("ssl.allow.san.changes",                 BOOLEAN,  False,                  ANY,         READ_ONLY,
        "Whether a key store loaded at run time may name other hosts."),
    Key("ssl.provider",                          STRING,   None,                   ANY,         PER_BROKER,
        "The Java security provider of TLS.", ignored=OPENSSL),
    Key("ssl.secure.random.implementation",      STRING,   None,                   ANY,         PER_BROKER,
        "The Java random generator of TLS.", ignored=OPENSSL),
    Key("ssl.keymanager.algorithm",              STRING,   "SunX509",              ANY,         PER_BROKER,
        "The Java key manager.", ignored=OPENSSL),
    Key("ssl.trustmanager.algorithm",            STRING,   "PKIX",                 ANY,         PER_BROKER,
        "The Java trust manager.", ignored=OPENSSL),
    Key("ssl.engine.factory.class",              CLASS,    None,                   ANY,         PER_BROKER,
        "A plugin that makes TLS engines.", ignored=JAVA_CLASS),
    Key("security.providers",                    STRING,   None,                   ANY,         READ_ONLY,
        "Java security providers to install.", ignored="names Java classes"),
)
