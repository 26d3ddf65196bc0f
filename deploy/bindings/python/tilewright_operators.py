"""Defines custom operators for Tilewright from Python expressions, and gives them to ONNX models.

    import tilewright_operators as tw
    op = tw.Operator("com.acme::RowScale")
    T = op.type("T", "f32")
    x, w = op.operand("x", "T[.., d]"), op.operand("w", "T[d]")
    epsilon = op.attribute("epsilon", 1e-5)
    y = op.result("y", "T[.., d]")
    j, k = op.axis("j"), op.axis("k")
    norm = op.stage("norm", ..., tw.sqrt(tw.sum({k: "d"}, x[..., k] * x[..., k]) / T(op.size("d")) + epsilon))
    op.define(y[..., j], x[..., j] * w[j] / norm[...])
    op.write("acme.ops")                 # for tilewright compile MODEL --operators acme.ops
    op.add_to(onnx_model)                # or into the model's metadata: then it needs no file

What an operator may say is in deploy/docs/custom_operators.md; this module writes that text, and
`tilewright check MODEL --operators FILE` says what is wrong with it. Needs nothing but Python.
"""

import json

__all__ = ["Operator", "Expression", "sum", "prod", "max", "min", "argmax", "argmin", "select", "cast"]
_FUNCTIONS = ("abs acos acosh asin asinh atan atanh bit_and bit_or bit_xor ceil cos cosh erf exp expm1 floor fmod log pow "
              "round_even shift_left shift_right sigmoid sin sinh sqrt tan tanh").split()
__all__ += _FUNCTIONS
METADATA_KEY = "tilewright.operators."


def _text(value):
    """An operand of an expression as text. Python's numbers take the type of what they meet."""
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        text = repr(value)
        return "(%s)" % text if text.startswith("-") else text
    if isinstance(value, str):
        return json.dumps(value)
    raise TypeError("expected an expression, a number or a text, found %r" % (value,))


def _index(index):
    parts = index if isinstance(index, tuple) else (index,)
    return "[%s]" % ", ".join(".." if part is Ellipsis else _text(part) for part in parts)


class Expression:
    """A value of a definition; arithmetic and comparisons of it are written down, not computed."""

    def __init__(self, text):
        self.text = text

    def __getitem__(self, index):
        return Expression(self.text + _index(index))

    def __bool__(self):
        raise TypeError("expected select(condition, a, b) or the operators & | ~ , found a condition of Python on %s" % self.text)

    def __neg__(self):
        return Expression("(-%s)" % self.text)

    def __invert__(self):
        return Expression("(!%s)" % self.text)

    def __hash__(self):
        return hash(self.text)


def _binary(symbol):
    def left(self, other):
        return Expression("(%s %s %s)" % (self.text, symbol, _text(other)))

    def right(self, other):
        return Expression("(%s %s %s)" % (_text(other), symbol, self.text))

    return left, right


for _name, _symbol in {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "/", "mod": "%", "and": "&&", "or": "||"}.items():
    _left, _right = _binary(_symbol)
    setattr(Expression, "__%s__" % _name, _left)
    setattr(Expression, "__r%s__" % _name, _right)
for _name, _symbol in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    setattr(Expression, "__%s__" % _name, _binary(_symbol)[0])


def _call(name, *args):
    return Expression("%s(%s)" % (name, ", ".join(_text(arg) for arg in args)))


def _function(name):
    return lambda *args: _call(name, *args)


for _name in _FUNCTIONS:
    globals()[_name] = _function(_name)


def select(condition, then, otherwise):
    """`then` where the condition holds; only the chosen side is computed."""
    return _call("select", condition, then, otherwise)


def cast(type_name, value):
    return _call(type_name, value)


def _reduction(name):
    def reduce(axes, *values):
        """name({axis: size, ...}, value); max and min of two values, too."""
        if not isinstance(axes, dict):
            return _call(name, axes, *values)
        sizes = ["%s: %s" % (_text(axis), size if isinstance(size, str) else _text(size)) for axis, size in axes.items()]
        return Expression("%s(%s, %s)" % (name, ", ".join(sizes), _text(*values)))

    return reduce


sum, prod, max, min, argmax, argmin = (_reduction(name) for name in ("sum", "prod", "max", "min", "argmax", "argmin"))  # as in `from numpy import *`: of this module


class Operator:
    """One definition. Its parts are added in any order; stages are computed in the order of `stage` and `define`."""

    def __init__(self, name):
        self.name = name
        self._operands, self._results, self._clauses, self._stages = [], [], [], []

    def type(self, name, *types):
        """A type variable, of the operands that name it. Called with a value, it is a cast."""
        self._clauses.append("type %s in %s;" % (name, ", ".join(types)))
        return lambda value: _call(name, value)

    def operand(self, name, type_and_shape):
        self._operands.append("%s: %s" % (name, type_and_shape))
        return Expression(name)

    def result(self, name, type_and_shape):
        self._results.append("%s: %s" % (name, type_and_shape))
        return Expression(name)

    def attribute(self, name, default=None, kind=None):
        """An attribute of the node; `kind` (int, float, ints, floats, string) where there is no default."""
        if kind is None:
            first = default[0] if isinstance(default, (list, tuple)) else default
            kind = {int: "int", float: "float", str: "string"}[type(first)] + ("s" if isinstance(default, (list, tuple)) else "")
        value = "" if default is None else " = " + json.dumps(default)
        self._clauses.append("attribute %s: %s%s;" % (name, kind, value))
        return Expression(name)

    def axis(self, name):
        return Expression(name)

    def size(self, name):
        """A size that an operand's shape names."""
        return Expression(name)

    def require(self, condition):
        self._clauses.append("require %s;" % _text(condition))

    def stage(self, name, axes, value):
        """A tensor between: axes are `...`, or {axis: size, ...}, or (..., {axis: size})."""
        parts = []
        for part in axes if isinstance(axes, tuple) else (axes,):
            if part is Ellipsis:
                parts.append("..")
            else:
                parts += ["%s: %s" % (_text(axis), size if isinstance(size, str) else _text(size)) for axis, size in part.items()]
        self._stages.append("%s[%s] = %s;" % (name, ", ".join(parts), _text(value)))
        return Expression(name)

    def define(self, element, value):
        """The value of an element of a result, such as y[..., j]."""
        self._stages.append("%s = %s;" % (element.text, _text(value)))

    def text(self):
        head = "operator %s(%s) -> (%s)" % (self.name, ", ".join(self._operands), ", ".join(self._results))
        return "\n".join([head, *("  " + clause for clause in self._clauses), "{", *("  " + stage for stage in self._stages), "}", ""])

    def write(self, path):
        with open(path, "w", encoding="ascii") as file:
            file.write(self.text())

    def add_to(self, model):
        """Adds the definition to an onnx.ModelProto; whoever gets the model can compile it."""
        entry = model.metadata_props.add()
        entry.key, entry.value = METADATA_KEY + self.name, self.text()
