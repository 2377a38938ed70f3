"""Who may do what: the authorizer, principals, delegation tokens."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import CLASS, LONG, PASSWORD, PER_BROKER, READ_ONLY, STRING
from pybroker.config.validators import ANY, Validator, at_least

JAVA_CLASS = "names a Java class"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZERS = Validator(f"empty, or {STANDARD_AUTHORIZER}", ("", STANDARD_AUTHORIZER).__contains__)
PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

KEYS = (
    Key("authorizer.class.name",                     STRING,   "",                AUTHORIZERS, READ_ONLY,
        "What checks access: empty, everything is allowed; StandardAuthorizer's Java name, by ACLs."),
    Key("principal.builder.class",                   CLASS,    PRINCIPAL_BUILDER, ANY,         PER_BROKER,
        "A plugin that makes a principal of a connection.", ignored=JAVA_CLASS),
    Key("delegation.token.secret.key",               PASSWORD, None,              ANY,         READ_ONLY,
        "The secret that signs delegation tokens, the same on all nodes; unset, there are no tokens."),
    Key("delegation.token.max.lifetime.ms",          LONG,     604_800_000,       at_least(1), READ_ONLY,
        "The longest a delegation token can be renewed to."),
    Key("delegation.token.expiry.time.ms",           LONG,     86_400_000,        at_least(1), READ_ONLY,
        "How long a delegation token is valid without renewal."),
    Key("delegation.token.expiry.check.interval.ms", LONG,     3_600_000,         at_least(1), READ_ONLY,
        "How often expired delegation tokens are removed."),
)
