"""Each repair against an independent reference, and the fault it is for, shown on the upstream code."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from infernix_plugin.seams import cpu_faults
from infernix_plugin.seams.cpu_faults import expand_batch, gdn_conv_state, gdn_lone_prompt, torchvision_ops
from infernix_plugin.seams.cpu_faults.seeded_chunks import untouched_streams
from infernix_plugin.seams.seam import ORIGINAL
from infernix_plugin.seams.versions import installed_release

cpu_faults.install_import_repairs()
platforms = pytest.importorskip("vllm.platforms")
if not platforms.current_platform.is_cpu():
    pytest.skip("these faults are only in the CPU backend, which is not installed here", allow_module_level=True)

needs_032 = pytest.mark.skipif(installed_release() != (0, 32), reason="a fault of vLLM 0.32")


# --- expand_batch_to_tokens ---------------------------------------------------------------------------------------


def expand_one_by_one(values: list[float], counts: list[int], replace: tuple[int, int]) -> list[float]:
    return [
        replace[1] if value == replace[0] else value for value, n in zip(values, counts, strict=True) for _ in range(n)
    ]


def call(
    function: Any, values: list[float], counts: list[int], dtype: torch.dtype, replace: tuple[int, int]
) -> list[float]:
    totals = torch.tensor(counts).cumsum(0).to(torch.int32)
    return list(function(torch.tensor(values, dtype=dtype), totals, sum(counts), *replace).tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
@pytest.mark.parametrize("replace", [(0, 0), (0, 1), (3, 7)])
def test_expand_repeats_each_value_for_its_tokens(dtype: torch.dtype, replace: tuple[int, int]) -> None:
    rng = random.Random(str(dtype) + str(replace))
    for _ in range(50):
        counts = [rng.randrange(5) for _ in range(rng.randrange(1, 7))]
        values = [float(rng.randrange(5)) for _ in counts]
        expected = expand_one_by_one(values, counts, replace)
        assert call(expand_batch.expand_batch_to_tokens, values, counts, dtype, replace) == expected


def test_expand_keeps_the_dtype() -> None:
    expanded = expand_batch.expand_batch_to_tokens(
        torch.tensor([0.5, 0.25]), torch.tensor([1, 3], dtype=torch.int32), 3
    )
    assert expanded.dtype == torch.float32
    assert expanded.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("dtype", "written"), [(torch.float32, False), (torch.int32, False), (torch.int64, True)])
def test_expand_upstream_writes_only_int64(dtype: torch.dtype, written: bool) -> None:
    """The function is what the CPU worker binds in place of the Triton kernel."""
    import vllm._custom_ops  # noqa: F401  (registers the compiled kernels)
    from vllm.utils.cpu_triton_utils import _expand_kernel_impl

    out = torch.full((3,), -9, dtype=dtype)
    _expand_kernel_impl(out, torch.tensor([5, 7], dtype=dtype), torch.tensor([1, 3], dtype=torch.int32), 0, 0)
    assert out.tolist() == ([5, 7, 7] if written else [-9, -9, -9]), "upstream is repaired: the seam can go"


# --- the convolution of a lone token -------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("width", [64, 96])
def test_a_prompt_of_one_token_is_convolved_as_any_other(tokens: int, width: int) -> None:
    """The input is a slice of a projection of this width; a lone row keeps the projection's stride."""
    import vllm._custom_ops  # noqa: F401  (registers the compiled kernels)

    module = import_module("vllm.model_executor.layers.mamba.ops.cpu.gdn_attention")
    upstream = getattr(module._causal_conv1d_fwd_cpu, ORIGINAL, module._causal_conv1d_fwd_cpu)
    repaired = gdn_lone_prompt._replace(upstream)
    torch.manual_seed(tokens)
    projected = torch.randn(tokens, width, dtype=torch.bfloat16)
    sliced, weight = projected[:, :64], torch.randn(64, 4, dtype=torch.bfloat16)

    def convolve(function: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = function(
            x=x.transpose(0, 1),
            weight=weight,
            bias=None,
            conv_states=torch.zeros(2, 64, 3, dtype=torch.bfloat16),
            query_start_loc=torch.tensor([0, tokens], dtype=torch.int32),
            cache_indices=torch.tensor([1], dtype=torch.int32),
            has_initial_state=torch.tensor([False]),
            silu_activation=True,
            is_weight_packed=False,
        )
        return out.float()

    padded = torch.cat([torch.zeros(3, 64), sliced.float()])
    expected = torch.stack([(padded[at : at + 4].T * weight.float()).sum(1) for at in range(tokens)], 1)
    expected = torch.nn.functional.silu(expected)
    torch.testing.assert_close(convolve(repaired, sliced), expected, rtol=2e-2, atol=2e-2)
    if width > 64:
        with pytest.raises(RuntimeError, match="expect x to be transposed"):
            convolve(upstream, sliced)


# --- the start of the n-gram drafter ------------------------------------------------------------------------------

NGRAM = """
from types import SimpleNamespace
import numpy as np
import torch
from infernix_plugin.seams.cpu_faults import ngram_start
from vllm.v1.spec_decode import ngram_proposer

if {repaired}:
    ngram_start.SEAM.apply(ngram_proposer)
configuration = SimpleNamespace(
    additional_config={{"infernix": {{"ngram_copies": {copies}}}}},
    speculative_config=SimpleNamespace(prompt_lookup_min=1, prompt_lookup_max=2, num_speculative_tokens=2),
    model_config=SimpleNamespace(max_model_len=16),
    scheduler_config=SimpleNamespace(max_num_seqs=4),
    parallel_config=SimpleNamespace(tensor_parallel_size=1),
)
torch.set_num_threads(1)
assert torch.get_num_threads() == 1  # also tells OpenMP so, as the first operation of a model does
torch.set_num_threads = None  # as in vLLM's worker, which puts a function there that does nothing
drafter = ngram_proposer.NgramProposer(configuration)
compiled = [len(ngram_proposer.batch_propose_numba.signatures)]
texts = np.tile(np.array([[5, 6, 7, 5, 6] + [0] * 11], dtype=np.int32), (4, 1))
found = drafter.propose(2, [[6]] * 4, np.full(4, 5, dtype=np.int32), texts)
assert found == [[7, 5]] * 4, found
compiled.append(len(ngram_proposer.batch_propose_numba.signatures))
print(*compiled, torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("repaired", "copies", "expected"),
    [(True, False, "1 1 1"), (False, False, "0 1 3"), (True, True, "0 1 3")],
    ids=["repaired", "upstream", "a drafter that is not used"],
)
def test_the_ngram_drafter_compiles_at_the_start_and_leaves_the_threads_alone(
    repaired: bool, copies: bool, expected: str
) -> None:
    """In processes of their own: numba starts its threads once."""
    environment = os.environ | {"NUMBA_NUM_THREADS": "3", "OMP_NUM_THREADS": "1", "INFERNIX_DISABLE": "1"}
    command = [sys.executable, "-c", NGRAM.format(repaired=repaired, copies=copies)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines()[-1] == expected, "upstream is repaired: the seam can go"


# --- gated delta net: the convolution state of short rows -----------------------------------------------------------

KEY_HEADS, VALUE_HEADS, HEAD_DIM, WIDTH = 1, 2, 128, 4
DIM = (2 * KEY_HEADS + VALUE_HEADS) * HEAD_DIM


def has_packed_kernel() -> bool:
    return gdn_conv_state._has_native_kernel(WIDTH) or torch.cpu._is_avx512_bf16_supported()


def make_layer(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(DIM, WIDTH, generator=generator).to(torch.bfloat16)

    def rearrange(mixed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sizes = [KEY_HEADS * HEAD_DIM, KEY_HEADS * HEAD_DIM, VALUE_HEADS * HEAD_DIM]
        return tuple(part.reshape(1, len(mixed), -1, HEAD_DIM).contiguous() for part in mixed.split(sizes, dim=-1))

    packed = weight
    if has_packed_kernel():
        from vllm import _custom_ops

        packed = _custom_ops.causal_conv1d_weight_pack(weight.clone())
    return SimpleNamespace(
        A_log=torch.randn(VALUE_HEADS, generator=generator),
        dt_bias=torch.randn(VALUE_HEADS, generator=generator).to(torch.bfloat16),
        activation="silu",
        conv1d=SimpleNamespace(weight=packed, bias=None, _cpu_unpacked_conv_weight=weight),
        rearrange_mixed_qkv=rearrange,
    )


class Request:
    """One request's inputs, and the outputs when they come one token at a time, each accepted."""

    def __init__(self, seed: int, length: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(length, DIM, generator=generator).to(torch.bfloat16)
        self.a = torch.randn(length, VALUE_HEADS, generator=generator).to(torch.bfloat16)
        self.b = torch.randn(length, VALUE_HEADS, generator=generator).to(torch.bfloat16)


class Engine:
    """Runs steps of speculative rows through a forward function, as vLLM's worker would."""

    def __init__(self, forward: Any, layer: Any, requests: int, speculative: int) -> None:
        self.forward, self.layer, self.columns = forward, layer, speculative + 1
        self.state_len = WIDTH - 1 + speculative
        slots = 1 + requests * self.columns
        # The state dimension is the last but one in memory, as in vLLM's default layout.
        self.conv = torch.zeros(slots, self.state_len, DIM, dtype=torch.bfloat16).transpose(1, 2)
        self.ssm = torch.zeros(slots, VALUE_HEADS, HEAD_DIM, HEAD_DIM)
        self.tables = torch.arange(1, slots, dtype=torch.int32).view(requests, self.columns)
        self.accepted = [1] * requests

    def step(self, rows: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> dict[int, torch.Tensor]:
        lengths = [len(x) for x, _, _ in rows.values()]
        metadata = SimpleNamespace(
            num_spec_decodes=len(rows),
            spec_state_indices_tensor=self.tables[list(rows)],
            spec_query_start_loc=torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
            num_accepted_tokens=torch.tensor([self.accepted[i] for i in rows], dtype=torch.int32),
        )
        x, a, b = (torch.cat(parts) for parts in zip(*rows.values(), strict=True))
        out = self.forward(self.layer, metadata, x, b, a, self.conv, self.ssm, WIDTH, self.state_len)
        return dict(zip(rows, out.split(lengths), strict=True))


def one_by_one(layer: Any, request: Request) -> torch.Tensor:
    """The reference: the same recurrence kernel, without speculation, a plain convolution over the whole history."""
    from vllm import _custom_ops

    padded = torch.cat([torch.zeros(WIDTH - 1, DIM), request.x.float()])
    weight = layer.conv1d._cpu_unpacked_conv_weight.float()
    windows = torch.stack([padded[t : t + WIDTH] for t in range(len(request.x))])
    convolved = torch.nn.functional.silu((windows * weight.T).sum(1).to(torch.bfloat16))
    state = torch.zeros(1, VALUE_HEADS, HEAD_DIM, HEAD_DIM)
    outputs = []
    for t in range(len(request.x)):
        query, key, value = layer.rearrange_mixed_qkv(convolved[t : t + 1])
        out = _custom_ops.fused_sigmoid_gating_delta_rule_update_cpu(
            A_log=layer.A_log, dt_bias=layer.dt_bias, q=query, k=key, v=value,
            a=request.a[t : t + 1], b=request.b[t : t + 1],
            initial_state_source=state, initial_state_indices=torch.zeros(1, dtype=torch.int32),
            cu_seqlens=torch.tensor([0, 1], dtype=torch.int32), use_qk_l2norm_in_kernel=True,
        )  # fmt: skip
        outputs.append(out.reshape(VALUE_HEADS, HEAD_DIM))
    return torch.stack(outputs)


def run(forward: Any, plan: str, seed: int) -> float:
    """Let two requests draft, accept and reject at random for 14 steps; return the largest deviation.

    ``plan``: how many tokens a row has: ``full`` S+1 always, ``short`` 2 always, ``ragged`` 1 to S+1 at random.
    Wrong drafts are noise: if any of it survives in a state, later outputs differ.
    """
    speculative = 3
    rng, noise = random.Random(seed), torch.Generator().manual_seed(seed)
    layer = make_layer(seed)
    requests = [Request(seed + i, 80) for i in range(2)]
    references = [one_by_one(layer, request) for request in requests]
    engine, position, worst = Engine(forward, layer, len(requests), speculative), [0, 0], 0.0
    for _ in range(14):
        rows, kept = {}, {}
        for i, request in enumerate(requests):
            tokens = {"full": speculative + 1, "short": 2, "ragged": rng.randrange(1, speculative + 2)}[plan]
            kept[i] = rng.randrange(1, tokens + 1)
            part = slice(position[i], position[i] + tokens)
            x, a, b = request.x[part].clone(), request.a[part].clone(), request.b[part].clone()
            for wrong in (x, a, b):
                wrong[kept[i] :] = torch.randn(wrong[kept[i] :].shape, generator=noise).to(wrong.dtype)
            rows[i] = (x, a, b)
        for i, out in engine.step(rows).items():
            expected = references[i][position[i] : position[i] + kept[i]]
            worst = max(worst, float((out[: kept[i]].float() - expected.float()).abs().max()))
            position[i] += kept[i]
            engine.accepted[i] = kept[i]
    return worst


@needs_032
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("plan", ["full", "short", "ragged"])
def test_gdn_rows_of_any_length_equal_one_token_at_a_time(plan: str, seed: int) -> None:
    assert run(gdn_conv_state._spec_forward, plan, seed) < 0.02


@needs_032
@pytest.mark.skipif(not has_packed_kernel(), reason="this processor cannot run the compiled convolution")
@pytest.mark.parametrize("plan", ["full", "short", "ragged"])
def test_gdn_compiled_convolution_takes_full_rows_only(monkeypatch: pytest.MonkeyPatch, plan: str) -> None:
    """Where vLLM would use the compiled kernel: right for every plan, and really used for full rows."""
    used = []
    compiled = gdn_conv_state._convolve_full_rows
    monkeypatch.setattr(gdn_conv_state, "_has_native_kernel", lambda width: True)
    monkeypatch.setattr(gdn_conv_state, "_convolve_full_rows", lambda *args: used.append(1) or compiled(*args))
    assert run(gdn_conv_state._spec_forward, plan, 0) < 0.02
    assert bool(used) == (plan == "full")


@needs_032
@pytest.mark.parametrize("plan", ["short", "ragged"])
def test_gdn_upstream_is_wrong_or_crashes_on_short_rows(plan: str) -> None:
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention

    original = getattr(gdn_attention._spec_forward, "__infernix_original__", gdn_attention._spec_forward)
    try:
        deviation = run(original, plan, 0)
    except RuntimeError:  # The size of tensor a must match the size of tensor b
        deviation = float("inf")
    assert deviation > 0.1, "upstream is repaired: the seam can go"


@needs_032
def test_gdn_upstream_is_right_on_full_rows() -> None:
    """The reference can tell right from wrong: what upstream does well passes it."""
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention

    original = getattr(gdn_attention._spec_forward, "__infernix_original__", gdn_attention._spec_forward)
    assert run(original, "full", 0) < 0.02


@pytest.mark.parametrize("seam", [expand_batch.SEAM, gdn_conv_state.SEAM], ids=lambda seam: seam.attribute)
def test_seam_replaces_the_attribute_where_it_is_needed(seam: Any) -> None:
    module = import_module(seam.module)
    if installed_release() not in seam.releases:
        pytest.skip("the installed vLLM release does not have the fault that this seam repairs")
    if not seam.applied(module):
        original = seam.check(module)
        assert seam.replace(original) is not original


# --- random streams of unfinished prompts --------------------------------------------------------------------------


def test_a_cpu_generator_still_has_no_offset() -> None:
    with pytest.raises(RuntimeError, match="offset"):  # otherwise vLLM's own way works and ours can go
        torch.Generator().get_offset()


def test_a_request_with_an_unfinished_prompt_has_no_generator_while_a_step_samples() -> None:
    streams = {index: torch.Generator() for index in (0, 2, 3)}
    batch = SimpleNamespace(num_reqs=3, generators=dict(streams))
    mask = SimpleNamespace(np=np.array([False, True, True, True]))  # the last one is left from a larger batch
    with untouched_streams(SimpleNamespace(input_batch=batch, discard_request_mask=mask)):
        assert batch.generators == {index: streams[index] for index in (0, 3)}
    assert batch.generators == streams


# --- torchvision ----------------------------------------------------------------------------------------------------


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter that starts without any of our repairs."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=600, check=False
    )


def torchvision_is_built_for_another_torch() -> bool:
    return python("import torchvision").returncode != 0


def test_torchvision_imports_after_install() -> None:
    pytest.importorskip("torchvision")
    done = python("""
        import sys
        from infernix_plugin.seams.cpu_faults import torchvision_ops
        torchvision_ops.install(); torchvision_ops.install()
        assert "torch" not in sys.modules and "torchvision" not in sys.modules
        assert sum(type(finder).__module__ == torchvision_ops.__name__ for finder in sys.meta_path) == 1
        import importlib.util
        assert importlib.util.find_spec("torchvision") is not None and "torch" not in sys.modules
        import inspect, torchvision, torchvision.transforms.v2
        assert "extension" in inspect.getsource(torchvision)
    """)
    assert done.returncode == 0, done.stderr[-2000:]


def test_torchvision_does_not_import_without() -> None:
    if not torchvision_is_built_for_another_torch():
        pytest.skip("the installed torchvision is built for the installed torch, so nothing is missing")
    done = python("import torchvision")
    assert "torchvision::nms" in done.stderr


def test_torchvision_operators_are_defined_once() -> None:
    if not torchvision_is_built_for_another_torch():
        pytest.skip("the installed torchvision is built for the installed torch, so nothing is missing")
    done = python("""
        from pathlib import Path
        from importlib.util import find_spec
        from infernix_plugin.seams.cpu_faults.torchvision_ops import define_missing_operators
        package = Path(find_spec("torchvision").origin).parent
        print(define_missing_operators(package), define_missing_operators(package))
    """)
    assert done.stdout.strip() == "['nms', 'qnms'] []", done.stderr[-2000:]


def test_torchvision_absent_is_left_alone() -> None:
    finder = torchvision_ops._BeforeTorchvision()
    assert finder.find_spec("torchvision", []) is None
    assert finder.find_spec("json", None) is None
