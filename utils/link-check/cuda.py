"""NVRTC and nvJitLink, by ctypes."""

import ctypes


class Failed(Exception):
    """A compiler or linker refused its input; the text is what it said."""


class Library:
    """A library whose functions return 0, or an error."""

    def __init__(self, path):
        self.functions = ctypes.CDLL(str(path))

    def call(self, name, *arguments):
        return getattr(self.functions, name)(*arguments)

    def text(self, size_of, get, handle):
        size = ctypes.c_size_t()
        if self.call(size_of, handle, ctypes.byref(size)) or size.value == 0:
            return ""
        buffer = ctypes.create_string_buffer(size.value)
        self.call(get, handle, buffer)
        return buffer.raw.rstrip(b"\0").decode()


def strings(texts):
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


class Nvrtc(Library):
    def __init__(self, lib):
        # It opens this one by name.
        (builtins,) = lib.glob("libnvrtc-builtins.so.*")
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        super().__init__(next(iter(lib.glob("libnvrtc.so.*"))))

    def compile(self, path, options):
        """PTX of a file. Warnings are failures."""
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), path.read_bytes(), str(path).encode(), 0, None, None)
        refused = self.call("nvrtcCompileProgram", program, len(options), strings(options))
        log = self.text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program)
        if refused or "warning" in log:
            raise Failed(log)
        return self.text("nvrtcGetPTXSize", "nvrtcGetPTX", program)


class NvJitLink(Library):
    PTX = 2

    def __init__(self, lib):
        super().__init__(next(iter(lib.glob("libnvJitLink.so.*"))))

    def link(self, texts, options):
        """Links PTX texts; returns the size of the cubin."""
        linker, size = ctypes.c_void_p(), ctypes.c_size_t()
        refused = self.call("nvJitLinkCreate", ctypes.byref(linker), len(options), strings(options))
        for name, text in texts if not refused else []:
            data = text.encode() + b"\0"
            refused = refused or self.call(
                "nvJitLinkAddData", linker, self.PTX, data, ctypes.c_size_t(len(data)), name.encode()
            )
        refused = refused or self.call("nvJitLinkComplete", linker)
        if refused:
            raise Failed(self.text("nvJitLinkGetErrorLogSize", "nvJitLinkGetErrorLog", linker) or f"error {refused}")
        self.call("nvJitLinkGetLinkedCubinSize", linker, ctypes.byref(size))
        self.call("nvJitLinkDestroy", ctypes.byref(linker))
        return size.value
