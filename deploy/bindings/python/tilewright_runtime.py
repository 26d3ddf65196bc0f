"""Runs Tilewright modules from Python, with NumPy arrays in and out.

    import tilewright_runtime as tw
    session = tw.Session(tw.Module("model.tw"), num_threads=2)
    outputs = session.run({"x": x})          # {"y": array}

Needs NumPy and libtilewright_runtime.so. It looks for the library in $TILEWRIGHT_RUNTIME_LIBRARY,
next to this file, two folders up (as installed), and where the system looks for libraries. Nothing is
compiled: the binding is ctypes on the C interface (tilewright.h).

Threads: a Module and a Session may be shared by threads. Session.run() is one whole call, and calls
on one session run one after another. To run calls at the same time, make a Session for each thread;
sessions of one Module share its code and constants. After a fork, make new sessions of the Module.

Outputs are copies. A session keeps its module alive.
"""

import contextlib
import ctypes
import os
import threading

import numpy as np

__all__ = ["Error", "Module", "Session", "TensorInfo", "runtime_version"]

_STATUS_NAMES = {
    2: "unknown", 3: "invalid_argument", 5: "not_found", 7: "permission_denied",
    8: "resource_exhausted", 9: "failed_precondition", 10: "aborted", 12: "unimplemented",
    13: "internal", 14: "unavailable", 15: "data_loss",
}


class Error(RuntimeError):
    """What the runtime refused or failed to do; `status` is the name of its status code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.status = _STATUS_NAMES.get(code, str(code))


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
        ("dtype", _DataType), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


class _TensorInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", _DataType), ("dtype_name", ctypes.c_char_p),
        ("ndim", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
    ]


class _SizeVar(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("min", ctypes.c_int64), ("max", ctypes.c_int64)]


class _DimInfo(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_char_p), ("is_open", ctypes.c_int32), ("min", ctypes.c_int64),
        ("max", ctypes.c_int64),
    ]


class _LaunchTime(ctypes.Structure):
    _fields_ = [("symbol", ctypes.c_char_p), ("name", ctypes.c_char_p), ("ns", ctypes.c_int64)]


def _load():
    name = "libtilewright_runtime.so"
    asked = os.environ.get("TILEWRIGHT_RUNTIME_LIBRARY")
    folder = os.path.dirname(os.path.abspath(__file__))
    # Next to this file, or as installed: PREFIX/lib/python3/dist-packages and PREFIX/lib.
    places = [os.path.join(folder, name), os.path.normpath(os.path.join(folder, "../..", name))]
    lib = ctypes.CDLL(asked or next((place for place in places if os.path.exists(place)), name))
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    status = ctypes.c_int
    out = ctypes.POINTER
    signatures = {
        "tw_last_error": (text, []),
        "tw_runtime_version": (text, []),
        "tw_module_open": (status, [text, out(pointer)]),
        "tw_module_open_memory": (status, [text, size, out(pointer)]),
        "tw_module_close": (None, [pointer]),
        "tw_module_name": (text, [pointer]),
        "tw_module_target": (text, [pointer]),
        "tw_module_manifest": (text, [pointer]),
        "tw_module_num_inputs": (size, [pointer]),
        "tw_module_num_outputs": (size, [pointer]),
        "tw_module_input": (status, [pointer, size, out(_TensorInfo)]),
        "tw_module_output": (status, [pointer, size, out(_TensorInfo)]),
        "tw_module_num_size_vars": (size, [pointer]),
        "tw_module_size_var": (status, [pointer, size, out(_SizeVar)]),
        "tw_module_open_with_libraries": (status, [text, out(text), size, out(pointer)]),
        "tw_module_input_dim": (status, [pointer, size, ctypes.c_int32, out(_DimInfo)]),
        "tw_module_output_dim": (status, [pointer, size, ctypes.c_int32, out(_DimInfo)]),
        "tw_module_output_shape": (
            status, [pointer, out(out(_Tensor)), size, size, out(ctypes.c_int64), ctypes.c_int32]),
        "tw_module_output_is_found": (ctypes.c_int, [pointer, size]),
        "tw_session_create": (status, [pointer, ctypes.c_int, out(pointer)]),
        "tw_session_destroy": (None, [pointer]),
        "tw_session_num_threads": (ctypes.c_int, [pointer]),
        "tw_session_call": (status, [pointer, out(out(_Tensor)), size, out(out(_Tensor)), size]),
        "tw_session_set_input": (status, [pointer, size, out(_Tensor)]),
        "tw_session_get_output": (status, [pointer, size, out(_Tensor)]),
        "tw_session_state_length": (
            status, [pointer, out(ctypes.c_int64), out(ctypes.c_int64)]),
        "tw_session_reset_state": (status, [pointer, ctypes.c_int64]),
        "tw_session_run_profiled": (status, [pointer, out(out(_LaunchTime)), out(size)]),
    }
    for function, (result, arguments) in signatures.items():
        getattr(lib, function).restype = result
        getattr(lib, function).argtypes = arguments
    return lib


_lib = _load()


def _check(code):
    if code != 0:
        raise Error(code, _lib.tw_last_error().decode("utf-8", "replace"))


def runtime_version():
    return _lib.tw_runtime_version().decode()


_DL_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_CPU = 1


class TensorInfo:
    """Name, element type (a Tilewright name such as "float32") and shape of an input or output.

    An open dimension is its text in `shape` ("N", "(N + 1) / 2"); `bounds` has the smallest and the
    largest size of each dimension."""

    def __init__(self, raw, dims):
        self.name = raw.name.decode()
        self.dtype_name = raw.dtype_name.decode()
        self.shape = tuple(dim.text.decode() if dim.is_open else dim.min for dim in dims)
        self.bounds = tuple((dim.min, dim.max) for dim in dims)

    @property
    def dtype(self):
        """The NumPy type; NumPy has no bfloat16, whose bits are given as uint16."""
        return np.dtype("uint16" if self.dtype_name == "bfloat16" else self.dtype_name)

    def __repr__(self):
        return f"{self.name}: {self.dtype_name}[{', '.join(str(dim) for dim in self.shape)}]"


class Module:
    """A module, from a path or from bytes. `size_vars` is {name: (min, max)} of the variables that
    open dimensions depend on; empty if all sizes are fixed. `libraries` are paths of shared libraries
    whose functions the module, given by its path, may call (external_kernel.h)."""

    def __init__(self, source, libraries=()):
        self._handle = ctypes.c_void_p()
        if libraries:
            names = (ctypes.c_char_p * len(libraries))(*map(os.fsencode, libraries))
            _check(_lib.tw_module_open_with_libraries(
                os.fsencode(source), names, len(libraries), ctypes.byref(self._handle)))
        elif isinstance(source, (bytes, bytearray)):
            data = bytes(source)
            _check(_lib.tw_module_open_memory(data, len(data), ctypes.byref(self._handle)))
        else:
            path = os.fsencode(source)
            _check(_lib.tw_module_open(path, ctypes.byref(self._handle)))
        self.inputs = self._infos(
            _lib.tw_module_num_inputs, _lib.tw_module_input, _lib.tw_module_input_dim)
        self.outputs = self._infos(
            _lib.tw_module_num_outputs, _lib.tw_module_output, _lib.tw_module_output_dim)
        self.size_vars = {}
        for i in range(_lib.tw_module_num_size_vars(self._handle)):
            var = _SizeVar()
            _check(_lib.tw_module_size_var(self._handle, i, ctypes.byref(var)))
            self.size_vars[var.name.decode()] = (var.min, var.max)

    def _infos(self, count, get, get_dim):
        infos = []
        for i in range(count(self._handle)):
            raw = _TensorInfo()
            _check(get(self._handle, i, ctypes.byref(raw)))
            dims = [_DimInfo() for _ in range(raw.ndim)]
            for d, dim in enumerate(dims):
                _check(get_dim(self._handle, i, d, ctypes.byref(dim)))
            infos.append(TensorInfo(raw, dims))
        return infos

    def is_found(self, output):
        """Whether only a run tells the shape of the output of this number."""
        return _lib.tw_module_output_is_found(self._handle, output) != 0

    def output_shapes(self, input_shapes):
        """The shapes of the outputs for these shapes of the inputs, both in the module's order.

        Where only a run tells a shape, the largest that it may be."""
        if not self.size_vars:
            return [info.shape for info in self.outputs]
        tensors = [_shaped(shape) for shape in input_shapes]
        given = _pointers(tensors)
        shapes = []
        for i, info in enumerate(self.outputs):
            shape = (ctypes.c_int64 * max(len(info.shape), 1))()
            _check(_lib.tw_module_output_shape(
                self._handle, given, len(given), i, shape, len(info.shape)))
            shapes.append(tuple(shape[:len(info.shape)]))
        return shapes

    @property
    def name(self):
        return _lib.tw_module_name(self._handle).decode()

    @property
    def target(self):
        return _lib.tw_module_target(self._handle).decode()

    @property
    def manifest(self):
        """The manifest as JSON text."""
        return _lib.tw_module_manifest(self._handle).decode()

    def __del__(self):
        if getattr(self, "_handle", None):
            _lib.tw_module_close(self._handle)


class Session:
    """Buffers and threads for calls of a module; num_threads 0 means all that this process may use."""

    def __init__(self, module, num_threads=0):
        self.module = module
        self._handle = ctypes.c_void_p()
        self._profiling = threading.Lock()
        self._finding = threading.Lock()
        # Of inputs that a run does not give: at first the smallest.
        self._shapes = [tuple(low for low, _ in info.bounds) for info in module.inputs]
        _check(_lib.tw_session_create(module._handle, num_threads, ctypes.byref(self._handle)))

    @property
    def num_threads(self):
        return _lib.tw_session_num_threads(self._handle)

    def run(self, inputs=None):
        """Sets the inputs given, runs, and returns copies of all outputs by name.

        Where dimensions are open, an input may have any size within its bounds; the outputs have
        the shapes that follow.

        Any number of threads may call it. An input that is not given keeps its contents from before,
        so threads that share a session give all inputs in each call."""
        given = [None] * len(self.module.inputs)
        for name, array in (inputs or {}).items():
            index = self._input_index(name)
            given[index] = _describe(self.module.inputs[index], array)
        shapes = [kept if tensor is None else tensor.array.shape
                  for tensor, kept in zip(given, self._shapes)]
        found = [self.module.is_found(i) for i in range(len(self.module.outputs))]
        arrays = [None if late else np.empty(shape, info.dtype) for info, shape, late in
                  zip(self.module.outputs, self.module.output_shapes(shapes), found)]
        results = [array if array is None else _describe(info, array)
                   for info, array in zip(self.module.outputs, arrays)]
        # What a run finds is in the session until the next run.
        with self._finding if any(found) else contextlib.nullcontext():
            _check(_lib.tw_session_call(
                self._handle, _pointers(given), len(given), _pointers(results), len(results)))
            arrays = [self._output(i) if array is None else array
                      for i, array in enumerate(arrays)]
        self._shapes = shapes
        return {info.name: array for info, array in zip(self.module.outputs, arrays)}

    def _output(self, index):
        """A copy of an output as the last run left it."""
        view = _Tensor()
        _check(_lib.tw_session_get_output(self._handle, index, ctypes.byref(view)))
        dtype = np.dtype(self.module.outputs[index].dtype)
        shape = tuple(view.shape[d] for d in range(view.ndim))
        array = np.empty(shape, dtype)
        if array.nbytes:
            ctypes.memmove(array.ctypes.data, view.data, array.nbytes)
        return array

    def set_input(self, name, array):
        """Copies an array of the input's type and of a shape that it may have; any strides will do.

        For one thread at a time: raises Error "aborted" while another thread uses the session."""
        index = self._input_index(name)
        tensor = _describe(self.module.inputs[index], array)
        _check(_lib.tw_session_set_input(self._handle, index, ctypes.byref(tensor)))
        self._shapes[index] = tensor.array.shape

    @property
    def state_length(self):
        """How many entries the module's state has: those of all runs since the last reset."""
        return self._state()[0]

    @property
    def state_capacity(self):
        """How many it may have; a run that needs more raises Error "resource_exhausted"."""
        return self._state()[1]

    def reset(self, length=0):
        """Forgets the state's entries from `length` on; by default all of them."""
        _check(_lib.tw_session_reset_state(self._handle, length))

    def _state(self):
        length, most = ctypes.c_int64(), ctypes.c_int64()
        _check(_lib.tw_session_state_length(
            self._handle, ctypes.byref(length), ctypes.byref(most)))
        return length.value, most.value

    def profile(self):
        """Runs once; [(kernel name, nanoseconds)] in order.

        For one thread at a time: raises Error "aborted" while another thread uses the session."""
        times = ctypes.POINTER(_LaunchTime)()
        count = ctypes.c_size_t()
        with self._profiling:  # the next profiled run overwrites the times
            _check(_lib.tw_session_run_profiled(
                self._handle, ctypes.byref(times), ctypes.byref(count)))
            return [((times[i].name or times[i].symbol).decode(), times[i].ns)
                    for i in range(count.value)]

    def _input_index(self, name):
        names = [info.name for info in self.module.inputs]
        if name not in names:
            raise KeyError(f"no input '{name}': expected one of {', '.join(names)}")
        return names.index(name)

    def __del__(self):
        if getattr(self, "_handle", None):
            _lib.tw_session_destroy(self._handle)


def _describe(info, array):
    """The array as a DLTensor, which keeps it alive."""
    array = np.asarray(array)
    if array.dtype != info.dtype:
        raise TypeError(f"input '{info.name}': expected {info.dtype}, found {array.dtype}")
    if any(s % array.itemsize for s in array.strides):
        array = np.ascontiguousarray(array, dtype=info.dtype)
    rank = max(array.ndim, 1)
    shape = (ctypes.c_int64 * rank)(*array.shape)
    strides = (ctypes.c_int64 * rank)(*(s // array.itemsize for s in array.strides))
    code = 4 if info.dtype_name == "bfloat16" else _DL_CODES[array.dtype.kind]
    tensor = _Tensor(
        data=array.ctypes.data, device=_Device(_CPU, 0), ndim=array.ndim,
        dtype=_DataType(code, array.itemsize * 8, 1), shape=shape, strides=strides)
    tensor.array = array
    return tensor


def _shaped(shape):
    """A DLTensor that is a shape and nothing else."""
    return _Tensor(ndim=len(shape), shape=(ctypes.c_int64 * max(len(shape), 1))(*shape))


def _pointers(tensors):
    """The addresses of the tensors; NULL for None."""
    pointer = ctypes.POINTER(_Tensor)
    return (pointer * len(tensors))(*(pointer() if t is None else ctypes.pointer(t) for t in tensors))
