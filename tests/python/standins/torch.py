"""What the launcher asks of torch, over NumPy: for tests where torch is not installed."""

strided = "torch.strided"


class dtype:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"


DTYPES = {
    name: dtype(name)
    for name in "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bfloat16".split()
}
globals().update(DTYPES)


class Tensor:
    requires_grad = is_nested = False
    is_cpu = True
    layout = strided

    class device:
        type = "cpu"

    def __init__(self, array, dtype=None):
        self.array = array
        self.dtype = dtype or DTYPES[array.dtype.name]
        self.shape = array.shape

    def data_ptr(self):
        return self.array.ctypes.data

    def is_contiguous(self):
        return self.array.flags.c_contiguous

    def is_neg(self):
        return False

    is_conj = is_neg

    def numel(self):
        return self.array.size

    def stride(self):
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def storage_offset(self):
        return 0

    def element_size(self):
        return self.array.itemsize

    def untyped_storage(self):
        return self

    def nbytes(self):
        return (self.array if self.array.base is None else self.array.base).nbytes


class Parameter(Tensor):
    pass
