"""Generates, per (message, version), one flat function that encodes it and one that decodes it.

Adjacent fixed-size fields go through one bound `Struct` method, nested structs are inlined as loops, and nothing is looked
up by name at run time but the attributes themselves. Generated code carries no bookkeeping for errors: every line is noted
with the field it works on, so when one fails, the line number of the traceback names the field and the local `p` the offset.
"""

from pybroker.protocol.codegen.constructor import constructor
from pybroker.protocol.codegen.decoder import decoder
from pybroker.protocol.codegen.encoder import encoder

__all__ = ["constructor", "decoder", "encoder"]
