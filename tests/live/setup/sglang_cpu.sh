#!/usr/bin/env bash
# Builds an SGLang server that runs on a CPU, and two tiny models for it. README.md says how to start it.
set -euo pipefail

if [ $# -ne 1 ] || [ -z "$1" ]; then
  echo "usage: $0 DIR    (makes DIR/venv, DIR/stubs, DIR/models/tiny and DIR/models/tiny-moe;" \
    "PYTHON=python3.x picks the interpreter)" >&2
  exit 2
fi
version=0.5.23
setup=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
venv=$PWD/venv

pip() {
  "$venv/bin/python" -m pip -qq --disable-pip-version-check "$@"
}

# What the server imports on its way up. SGLang's own list is for GPUs: it would add kernels and CUDA libraries.
needs=(
  aiohttp requests tqdm fastapi uvicorn uvloop orjson pyzmq msgspec prometheus-client psutil pybase64 pydantic
  python-multipart setproctitle transformers==5.19.0 tokenizers sentencepiece tiktoken partial_json_parser pillow
  interegular xgrammar==0.2.7 llguidance einops IPython packaging scipy xxhash zstandard watchfiles regex
  openai==2.8.0 openai-harmony==0.0.4 compressed-tensors datasets torch_memory_saver distro ninja gguf
  apache-tvm-ffi==0.1.11 easydict py-spy blobfile modelscope outlines==0.1.11 soundfile numba==0.65.1
)

# Written last, so that an interrupted installation is finished by the next call.
installed=$venv/.sglang-$version
if [ ! -e "$installed" ]; then
  "${PYTHON:-python3}" -m venv "$venv"
  # SGLang pins 2.14.1; this one works, and has a CPU build.
  pip install torch==2.13.0 "${needs[@]}"
  pip install --no-deps "sglang==$version"
  touch "$installed"
fi

# SGLang imports both packages at its start, whatever it then serves. The first has no CPU build on the package index;
# builds of the second do not load beside a CPU torch. A text model as small as these calls into neither.
mkdir -p stubs/sgl_kernel stubs/torchvision
cat >stubs/sgl_kernel/__init__.py <<'END'
__version__ = "0.0.0+stub"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def op(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel stub: {name}")

    op.__name__ = name
    return op
END
cat >stubs/torchvision/__init__.py <<'END'
import importlib.machinery
import sys
import types

__version__ = "0.0.0+stub"
MODULES = (
    "transforms",
    "transforms.functional",
    "transforms.v2",
    "transforms.v2.functional",
    "io",
    "ops",
    "models",
    "datasets",
    "utils",
    "tv_tensors",
)


class _Meta(type):
    def __getattr__(cls, name):  # members of enumerations are read while modules load
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


class _Anything(metaclass=_Meta):
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        raise RuntimeError("torchvision stub")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


for name in MODULES:
    full = f"{__name__}.{name}"
    module = _Module(full)
    module.__path__ = []
    module.__spec__ = importlib.machinery.ModuleSpec(full, None, is_package=True)
    sys.modules[full] = module
    parent, _, leaf = full.rpartition(".")
    setattr(sys.modules[parent], leaf, module)
END

# model NAME: a tokenizer, and config.json from standard input.
model() {
  local folder=models/$1
  if [ ! -e "$folder/config.json" ]; then
    mkdir -p "$folder"
    "$venv/bin/python" "$setup/tiny_tokenizer.py" "$folder" </dev/null
    cat >"$folder/config.json"
  fi
}

model tiny <<'END'
{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "vocab_size": 4096,
  "hidden_size": 256,
  "intermediate_size": 704,
  "num_hidden_layers": 4,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 64,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "max_position_embeddings": 4096,
  "tie_word_embeddings": false,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "torch_dtype": "bfloat16"
}
END

model tiny-moe <<'END'
{
  "architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe",
  "vocab_size": 4096,
  "hidden_size": 256,
  "intermediate_size": 512,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 64,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0,
  "max_position_embeddings": 4096,
  "attention_bias": false,
  "num_experts": 8,
  "num_experts_per_tok": 2,
  "moe_intermediate_size": 128,
  "norm_topk_prob": true,
  "decoder_sparse_step": 1,
  "mlp_only_layers": [],
  "tie_word_embeddings": false,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "torch_dtype": "bfloat16"
}
END
echo "$PWD: venv, stubs, models/tiny and models/tiny-moe are ready"
