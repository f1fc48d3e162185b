"""Loading an unmodified transformers model so that a forward pass can be exact."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from kvg.errors import Incompatible
from kvg.model.adapter import apply_adapter
from kvg.model.binding import BoundCache, ShapeProbe
from kvg.model.compiled import check_interpreted
from kvg.model.dtypes import TORCH_DTYPES, dtype_name
from kvg.model.experts import EXPERTS_NAME, use_invariant_experts
from kvg.model.foreign import first_line
from kvg.model.invariant import (
    ATTENTION_NAME,
    AttentionShape,
    Execution,
    TileMenu,
    installed,
    no_hidden_operators,
)
from kvg.model.masks import check_windows
from kvg.model.window import window_of
from kvg.objects.manifest import Group, LayerSpec, group_layers
from kvg_kernels.alignment import aligned

KNOWN_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
LEAST_HEAD = 2
"""Numbers in a head's keys and values."""
FOREIGN_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a model's own code may raise where it can't compute."""
PROBED_TOKENS = (3, 1)
"""Several and one: a model may take another way for a single token."""
LENGTH_DEPENDENT_ROTARY = frozenset({"dynamic", "longrope"})


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: its forward pass, what its layers cache, and how far it can reach.

    ``window`` is the number of positions it was made for. ``shapes`` are what its attention layers
    compute, without repeats.
    """

    module: PreTrainedModel
    layers: tuple[LayerSpec, ...]
    groups: tuple[Group, ...]
    shapes: tuple[AttentionShape, ...]
    dtype: str
    device: torch.device
    vocabulary: int
    window: int
    eos_ids: frozenset[int]

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        cache: BoundCache,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """Logits ``[B, len(rows), vocabulary]`` of a pass over ids ``[B, T]`` at ``positions``."""
        return _forward(self.module, ids, positions, cache, rows)

    def stock_logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits ``[len(ids), vocabulary]`` of one pass without kvg's attention and operators.

        It is made by a twin of the module with the same tensors, whose settings are its own: other
        threads may compute with the module meanwhile.
        """
        tokens = torch.tensor([list(ids)], dtype=torch.long, device=self.device)
        positions = torch.arange(len(ids), device=self.device).unsqueeze(0)
        shared = itertools.chain(self.module.parameters(), self.module.buffers())
        twin = copy.deepcopy(self.module, {id(tensor): tensor for tensor in shared})
        twin.set_attn_implementation("eager")
        use_invariant_experts(twin, "eager")
        with torch.inference_mode():
            out = twin(input_ids=tokens, position_ids=positions, use_cache=False)
        return out.logits[0]  # type: ignore[no-any-return]


def load_model(
    folder: Path, *, dtype: str, device: str, attention: str, adapter: Path | None = None
) -> LoadedModel:
    """Load the model in ``folder`` for attention ``kvg_invariant``, ``sdpa`` or ``eager``.

    ``adapter`` is the folder of a PEFT adapter. Raises ``Incompatible`` when the device is absent
    or the model cannot be captured.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        module = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=TORCH_DTYPES[dtype],
            attn_implementation="eager",
            local_files_only=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise Incompatible(
            f"{folder}: transformers cannot load this model: {first_line(error)}",
            hint="kvg model add takes a folder with config.json and *.safetensors",
        ) from None
    if adapter is not None:
        apply_adapter(module, adapter)
    return adopt_model(module, device=device, attention=attention, what=str(folder))


def adopt_model(module: PreTrainedModel, *, device: str, attention: str, what: str) -> LoadedModel:
    """Prepare a transformers model that is in memory already; see ``load_model``."""
    where = torch_device(device)
    module.eval()
    module.requires_grad_(False)
    module.to(where)  # type: ignore[arg-type]
    _align(module)
    config = module.config.get_text_config()
    check_config(config.to_dict(), what=what)
    if attention == ATTENTION_NAME:
        check_interpreted(module, what=what)
    module.set_attn_implementation(ATTENTION_NAME)
    use_invariant_experts(module, EXPERTS_NAME)
    layers, shapes = probe_layers(
        module, where, what=what, is_invariant=attention == ATTENTION_NAME
    )
    use_invariant_experts(module, "eager")
    check_windows(module, shapes, what=what)
    module.set_attn_implementation(attention)
    if attention == ATTENTION_NAME:
        use_invariant_experts(module, EXPERTS_NAME)
    return LoadedModel(
        module=module,
        layers=layers,
        groups=group_layers(layers),
        shapes=tuple(dict.fromkeys(shapes.values())),
        dtype=dtype_name(module.dtype),
        device=where,
        vocabulary=_vocabulary(config, what=what),
        window=window_of(module.config),
        eos_ids=eos_ids(module),
    )


def _vocabulary(config: PreTrainedConfig, *, what: str) -> int:
    """How many token ids every embedding of the model knows. Raises ``Incompatible`` for fewer than
    two: nothing could be told of logits of one."""
    sizes = (config.vocab_size, getattr(config, "vocab_size_per_layer_input", None))
    found = min(int(size) for size in sizes if size)
    if found < 2:
        raise Incompatible(f"{what}: a vocabulary of {found} token")
    return found


def torch_device(name: str) -> torch.device:
    """The device called ``auto``, ``cpu`` or ``cuda:N``. Raises ``Incompatible`` when absent."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise Incompatible(f"device {name}: unknown", hint="auto, cpu or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Incompatible(f"device {name}: no CUDA device here", hint="use --device cpu")
    if device.type not in ("cpu", "cuda"):
        raise Incompatible(f"device {name}: not supported", hint="auto, cpu or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise Incompatible(f"device {name}: absent", hint="kvg doctor lists the devices")
    return device


def check_config(config: Mapping[str, object], *, what: str) -> None:
    """Refuse by name what pages cannot hold or what changes old keys as a text grows."""
    unknown = sorted(set(_strings(config.get("layer_types"))) - KNOWN_LAYER_TYPES)
    if unknown:
        raise Incompatible(
            f"{what}: layers of type {', '.join(unknown)} keep a state that pages cannot hold yet",
            hint="only models whose every layer is attention can be deposited",
        )
    if config.get("kv_lora_rank"):
        raise Incompatible(
            f"{what}: latent attention keeps compressed keys, which pages cannot hold yet",
            hint="only models that cache keys and values can be deposited",
        )
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    for kind in sorted(_rotary_types(rotary) & LENGTH_DEPENDENT_ROTARY):
        raise Incompatible(
            f"{what}: {kind} rotary angles change with the length of the text",
            hint="a key computed in a short text would differ in a longer one",
        )


def probe_layers(
    module: PreTrainedModel, device: torch.device, *, what: str, is_invariant: bool
) -> tuple[tuple[LayerSpec, ...], dict[int, AttentionShape]]:
    """What each layer caches and what its attention computes, seen in a pass over a few tokens.

    Raises ``Incompatible`` unless every layer attends (one that does not may keep its state to
    itself), and with ``is_invariant`` also for what the invariant reference cannot compute.
    """
    for n_tokens in PROBED_TOKENS:
        cache = ShapeProbe()
        execution = Execution(cache, TileMenu())
        places = torch.arange(n_tokens, device=device).unsqueeze(0)
        hidden = no_hidden_operators() if is_invariant else nullcontext()
        with torch.inference_mode(), hidden, installed(execution):
            try:
                _forward(module, torch.zeros_like(places), places, cache, places[0, :1])
            except FOREIGN_FAILURES as error:
                raise Incompatible(
                    f"{what}: {type(module).__name__} cannot compute a few tokens as it is: "
                    f"{first_line(error)}",
                    hint="only models that continue a text from its tokens alone can be deposited",
                ) from None
        if is_invariant and execution.refusal is not None:
            raise Incompatible(f"{what}: {execution.refusal.message}", hint=execution.refusal.hint)
    n_layers = int(module.config.get_text_config().num_hidden_layers)
    if len(execution.shapes) != n_layers:
        raise Incompatible(
            f"{what}: {len(execution.shapes)} of its {n_layers} layers attend as transformers' "
            "attention interface asks; the others may keep a state that pages cannot hold",
            hint="only models whose every layer is attention can be deposited",
        )
    layers = tuple(
        LayerSpec(
            index=index,
            kind="attention",
            kv_heads=kv_heads,
            k_dim=k_dim,
            v_dim=v_dim,
            dtype=dtype_name(dtype),
            window=execution.shapes[index].spec.window,
        )
        for index, (kv_heads, k_dim, v_dim, dtype) in sorted(cache.shapes.items())
    )
    if any(min(layer.k_dim, layer.v_dim) < LEAST_HEAD for layer in layers):
        raise Incompatible(
            f"{what}: heads of fewer than {LEAST_HEAD} numbers: their products have no order that "
            "could be compared"
        )
    return layers, execution.shapes


def cache_argument(module: PreTrainedModel) -> str:
    """What the forward pass of ``module`` calls its cache."""
    # transformers renames this argument: `past_key_values` up to 5.23, `cache` from 5.24.
    known = inspect.signature(module.forward).parameters
    return "cache" if "cache" in known else "past_key_values"


def eos_ids(module: PreTrainedModel) -> frozenset[int]:
    """The token ids that end a text, from the model's generation settings."""
    settings = getattr(module, "generation_config", None)
    value = getattr(settings, "eos_token_id", None)
    if value is None:
        value = getattr(module.config, "eos_token_id", None)
    if value is None:
        return frozenset()
    return frozenset(value if isinstance(value, list) else [value])


def _forward(
    module: PreTrainedModel,
    ids: torch.Tensor,
    positions: torch.Tensor,
    cache: BoundCache,
    rows: torch.Tensor,
) -> torch.Tensor:
    out = module(
        input_ids=ids,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=rows,
        **{cache_argument(module): cache},
    )
    return out.logits  # type: ignore[no-any-return]


def _align(module: torch.nn.Module) -> None:
    """Move every weight that does not lie on a 64-byte boundary."""
    for parameter in module.parameters():
        parameter.data = aligned(parameter.data)


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _rotary_types(value: object) -> set[str]:
    """Every rope type named in a config's rotary settings, also where they differ by layer type."""
    if not isinstance(value, Mapping):
        return set()
    found = {str(value.get("rope_type") or value.get("type") or "default")}
    for inner in value.values():
        found |= _rotary_types(inner)
    return found
