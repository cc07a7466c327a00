"""What a token costs at least: the bytes that decoding one must read and the operations that
prefilling one must do, from the header of a GGUF file. A multiply-add is two operations."""
import mmap
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BF16 = 30
FLOAT_TYPES = {0, 1, BF16}  # F32, F16


class Header:
    """Metadata (arrays as their lengths) and tensors: name → (shape, type, bytes)."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 4
        if self.data[:4] != b"GGUF":
            raise ValueError(f"{path}: not a GGUF file")
        self._scalar("I")
        n_tensors, n_metadata = self._scalar("Q"), self._scalar("Q")
        self.metadata = {}
        for _ in range(n_metadata):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        self.tensors = self._read_tensors(n_tensors)

    def _scalar(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def _string(self):
        n = self._scalar("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def _value(self, kind):
        if kind in SCALARS:
            return self._scalar(SCALARS[kind])
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            raise ValueError(f"unknown metadata type {kind}")
        kind, n = self._scalar("I"), self._scalar("Q")
        if kind in SCALARS:
            values = struct.unpack_from(f"<{n}{SCALARS[kind]}", self.data, self.at) if n <= 4096 else n
            self.at += n * struct.calcsize("<" + SCALARS[kind])
            return values
        for _ in range(n):
            self._value(kind)
        return n

    def _read_tensors(self, n):
        raw = []
        for _ in range(n):
            name = self._string()
            shape = [self._scalar("Q") for _ in range(self._scalar("I"))]
            raw.append((name, shape, self._scalar("I"), self._scalar("Q")))
        align = self.metadata.get("general.alignment", 32)
        end = len(self.data) - (self.at + align - 1) // align * align
        ends = sorted(offset for *_, offset in raw)[1:] + [end]
        size = {a: b - a for a, b in zip(sorted(offset for *_, offset in raw), ends)}
        return {name: (shape, kind, size[offset]) for name, shape, kind, offset in raw}


class Cost:
    def __init__(self, path):
        h = Header(path)
        if "split.count" in h.metadata and h.metadata["split.count"] > 1:
            raise ValueError(f"{path}: one of a split set: its header tells only a part")
        arch = h.metadata["general.architecture"]
        get = lambda key, default=None: h.metadata.get(f"{arch}.{key}", default)
        one = lambda v: max(v) if isinstance(v, tuple) else v
        self.layers = get("block_count")
        heads = one(get("attention.head_count"))
        kv_heads = one(get("attention.head_count_kv", heads))
        k_dim = get("attention.key_length", get("embedding_length") // heads)
        v_dim = get("attention.value_length", k_dim)
        self.window = get("attention.sliding_window") or 0
        self.kv_bytes = 2 * self.layers * kv_heads * (k_dim + v_dim)  # a token's, in f16
        self.attention_ops = 2 * self.layers * heads * (k_dim + v_dim)  # a pair of tokens'
        used = (get("expert_used_count") or 1) / (get("expert_count") or 1)
        head = "output.weight" if "output.weight" in h.tensors else "token_embd.weight"
        self.weight_bytes = self.layer_ops = self.head_ops = float_bytes = bf16_bytes = 0
        for name, (shape, kind, size) in h.tensors.items():
            elements = 1
            for n in shape:
                elements *= n
            share = used if "_exps." in name else 1
            if name != head and name.startswith("token_embd"):
                continue
            self.weight_bytes += size * share
            float_bytes += size * share if kind in FLOAT_TYPES else 0
            bf16_bytes += size * share if kind == BF16 else 0
            if name == head:
                self.head_ops = 2 * elements
            elif len(shape) > 1:
                self.layer_ops += 2 * elements * share
        self.is_float = float_bytes > self.weight_bytes / 2
        self.is_bf16 = bf16_bytes > self.weight_bytes / 2
        self.name = h.metadata.get("general.name", "")

    def decode_bytes(self, depth):
        """Of one token after `depth` others; no window is taken as wider than it is."""
        return self.weight_bytes + self.kv_bytes * (min(depth, self.window) if self.window else depth)

    def prefill_ops(self, n):
        """Of a prompt of n tokens from the first on, of whose logits the last ones are wanted."""
        pairs = n * (min(n, self.window) if self.window else n) / 2
        return n * self.layer_ops + pairs * self.attention_ops + self.head_ops
