"""How graphs are edited, and the algebra of folding and fusing.

A rule says `from normlint import rewrite` and asks for `rewrite.norm_ops.layer_norm`: each
module is imported when a rule first has something to repair, for start-up time counts.
"""

from typing import TYPE_CHECKING

from normlint.lazily import modules_of

if TYPE_CHECKING:
    from normlint.rewrite import centre_approximate as centre_approximate
    from normlint.rewrite import centre_plan as centre_plan
    from normlint.rewrite import channels_first as channels_first
    from normlint.rewrite import demands as demands
    from normlint.rewrite import float_parameters as float_parameters
    from normlint.rewrite import fold_dead as fold_dead
    from normlint.rewrite import fold_legacy as fold_legacy
    from normlint.rewrite import fold_rows as fold_rows
    from normlint.rewrite import fold_training as fold_training
    from normlint.rewrite import group_scale as group_scale
    from normlint.rewrite import islands as islands
    from normlint.rewrite import norm_bias as norm_bias
    from normlint.rewrite import norm_ops as norm_ops
    from normlint.rewrite import rescale as rescale
    from normlint.rewrite import respell as respell
    from normlint.rewrite import smooth as smooth
    from normlint.rewrite import standard as standard
    from normlint.rewrite import two_pass as two_pass
    from normlint.rewrite import unquantize as unquantize
else:
    __getattr__ = modules_of(__name__)
