"""Networks of PyTorch whose synapses learn delays (DCLS): read, trained with dropout and a width that shrinks, handed
back, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import MimdsimError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
dcls = pytest.importorskip("dcls")
nn, snn = zoo.nn, zoo.snn


def example(scale: float = 3.0, **how: Any) -> tuple[Any, Any, Any]:
    made = zoo.TorchNetwork(make=lambda: zoo.DelayLine(**how), judge=zoo.of_membrane, scale=scale)
    return zoo.example(made)  # type: ignore[no-any-return]


def close(found: Any, wanted: Any, share: float) -> bool:
    return float((found - wanted).detach().abs().max()) < share * float(wanted.detach().abs().max())


@pytest.mark.parametrize("ages", [4, 5])
def test_positions_are_read_as_delays_and_the_width_as_it_is(ages: int) -> None:
    module, spikes, _ = example(ages=ages)
    with torch.no_grad():
        module.convs[1].SIG.neg_().add_(0.5)
    workload = mimdsim.from_torch(module, spikes)
    width = ages / 4 + 0.27
    of = {"ages": ages, "training_steps": 0, "epsilon": 1e-7}
    for name, wanted in (("hidden0", width), ("hidden1", width - 0.5), ("output", width)):
        found = workload.network.delays[name].model_dump()
        assert found == of | dict.fromkeys(("width", "final_width"), pytest.approx(wanted))
    program = mimdsim.torch_function(workload, "tiny")
    meant = ages - 1 - (module.convs[0].P[0, :, :, 0].T + ages // 2)  # the last tap reads what is youngest
    assert torch.equal(program.hidden0_delay, meant)


@pytest.mark.parametrize("norm", [True, False])
def test_dropout_and_a_width_that_shrinks_are_trained_as_pytorch_does(
    norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, spikes, labels = example(3.0 if norm else 12.0, dropout=0.5, norm=norm)
    workload = mimdsim.from_torch(module, spikes, loss={"loss": "cross_entropy", "reading": "every"})
    assert (workload.network.dropout, workload.network.dropout_per) == ((0.0, 0.5, 0.5), "sequence")
    program = mimdsim.torch_function(workload, "bow")
    for name in ("hidden0", "hidden1", "output"):
        program.get_buffer(f"delay_width_{name}").mul_(0.5)
    with torch.no_grad():
        for conv in module.convs:
            conv.SIG.add_(0.27).div_(2).sub_(0.27)
    made = program(spikes)
    masks = {f"{name}.of.{of}": program._executor.arrays[f"mask.{name}.of.{of}"].copy() for name, of in OF_MASKS}
    every = iter(torch.from_numpy(each) for each in masks.values())
    monkeypatch.setattr(zoo.jelly.Dropout, "create_mask", lambda *_: next(every))
    zoo.functional.reset_net(module)
    theirs = module(spikes)
    assert close(made, theirs, 1e-5)
    for reading in (made, theirs):  # the loss of Hammouamri et al., as one of a user's own
        nn.functional.cross_entropy(reading.softmax(2).sum(0), labels).backward()
    for layer, conv in zip(("hidden0", "hidden1", "output"), module.convs, strict=True):
        for role, wanted in (("", conv.weight.grad[:, :, 0].T), ("_delay", -conv.P.grad[0, :, :, 0].T)):
            assert close(program.get_parameter(f"{layer}{role}").grad, wanted, 5e-6), f"{layer}{role}"


OF_MASKS = (("hidden1", "hidden0"), ("output", "hidden1"))


def test_delays_that_were_trained_go_back_into_positions() -> None:
    module, spikes, _ = example()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    workload = mimdsim.from_torch(module, spikes, changes={"training.max_training_steps": 2})
    made = mimdsim.run(workload, "bow", gpus=())
    mimdsim.to_torch(module, made)
    for name, each in module.state_dict().items():
        assert torch.equal(each, before[name]) == (name.endswith(("SIG", "batches_tracked"))), name
    again = mimdsim.torch_function(mimdsim.from_torch(module, spikes), "bow")
    for name, values in again.weights.items():
        np.testing.assert_allclose(values, made.weights[name].reshape(values.shape), atol=3e-7)


class Loop(nn.Module):  # type: ignore[misc, name-defined]
    """Delays, with a bias, over time, and snnTorch's neurons in loops; the second layer is a product with delays of
    spikes that were stacked."""

    def __init__(self, read_out: bool = False) -> None:
        super().__init__()
        self.first = dcls.Dcls1d(zoo.INPUTS, zoo.HIDDEN, 1, dilated_kernel_size=4)
        self.last = dcls.Dcls1d(zoo.HIDDEN, zoo.CLASSES, 1, dilated_kernel_size=3, bias=False)
        self.lif1, self.lif2, self.read_out = snn.Leaky(beta=0.9), snn.Leaky(beta=0.8), read_out
        for each in (self.first, self.last):
            each.SIG.requires_grad = False
            each.weight.data.mul_(4)

    def forward(self, x: Any) -> Any:
        for conv, lif in ((self.first, self.lif1), (self.last, self.lif2)):
            x = conv(nn.functional.pad(x.permute(1, 2, 0), (conv.dilated_kernel_size[0] - 1, 0))).permute(2, 0, 1)
            if conv is self.last and self.read_out:
                return x.sum(0)
            state, sent = lif.reset_mem(), []
            for now in x:
                spikes, state = lif(now, state)
                sent.append(spikes)
            x = torch.stack(sent)
        return x


@pytest.mark.parametrize("read_out", [False, True])
def test_loops_around_delays_are_read(read_out: bool) -> None:
    torch.manual_seed(2)
    module = Loop(read_out)
    module.first.P.requires_grad = False
    _, spikes, labels = example()
    workload = mimdsim.from_torch(module, spikes)
    assert [each.ages for each in workload.network.delays.values()] == [4, 3]
    assert workload.training.frozen == ("hidden0.delay",)
    assert workload.network.spikes == "sparse"
    program = mimdsim.torch_function(workload, "bow")
    made = module(spikes)
    theirs = made if read_out else made.sum(0)
    ours = program(spikes)
    assert close(ours, theirs, 1e-5)
    for reading in (ours, theirs):
        nn.functional.cross_entropy(reading, labels).backward()
    assert program.hidden0_delay.grad is None
    assert close(program.hidden0_bias.grad, module.first.bias.grad[None], 5e-6)
    assert close(program.output_delay.grad, -module.last.P.grad[0, :, :, 0].T, 5e-6)


@pytest.mark.filterwarnings("ignore:.*sends no spikes on the example")
def test_an_exported_file_says_that_delays_are_rounded(tmp_path: Path) -> None:
    pytest.importorskip("nir")
    from mimdsim.workload.interchange.nir_reading import read_nir
    from mimdsim.workload.interchange.nir_walk import network_of_nir
    from mimdsim.workload.interchange.nir_writing import export_nir

    module, spikes, _ = example(ages=3)
    workload = mimdsim.from_torch(module, spikes)
    said = export_nir(workload, None, tmp_path / "delays.nir", 1e-3)
    assert "note: delays that were learned by hidden0, hidden1, output are rounded to timesteps" in said
    found = network_of_nir(tmp_path / "delays.nir", read_nir(tmp_path / "delays.nir"))
    assert [[each.lag for each in sources] for sources in found.sources] == 3 * [[0, 1, 2]]
    held = [layer.weight.detach()[:, :, 0].T.numpy() for layer in module.convs]
    for made, weights in zip(found.populations[2:], held[2:], strict=True):  # the others have a norm folded into them
        np.testing.assert_allclose(sum(values for _, values in made.reads), weights / 2, rtol=1e-6)  # its tau is 2


def changed(change: Callable[[Any], Any], **how: Any) -> Any:
    module, spikes, _ = example(**how)
    with torch.no_grad():
        change(module)
    return module, spikes


def padded(before: int, after: int) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        module.delayed = lambda conv, x: conv(
            nn.functional.pad(x.permute(1, 2, 0), (before, after)) if before or after else x.permute(1, 2, 0)
        ).permute(2, 0, 1)

    return change


def replaced(**how: Any) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        module.convs[0] = dcls.Dcls1d(zoo.INPUTS, zoo.HIDDEN, **{"kernel_count": 1, "dilated_kernel_size": 5, **how})

    return change


REFUSED: dict[str, Callable[[], Any]] = {
    "'convs.0' (Dcls1d) learns its SIG; nearest: SIG.requires_grad = False": lambda: changed(replaced()),
    "(Dcls1d) has a SIG that differs from synapse to synapse": lambda: changed(
        lambda module: module.convs[0].SIG[0, 0, 0].add_(1)
    ),
    "(Dcls1d) has version='max'; nearest: version='gauss'": lambda: changed(lambda _: None, version="max"),
    "(Dcls1d) has version='v1'; nearest: version='gauss'": lambda: changed(lambda _: None, version="v1"),
    "(Dcls1d) has 3 weights for a synapse; nearest: kernel_count=1": lambda: changed(replaced(kernel_count=3)),
    "(Dcls1d) has groups=2; nearest: groups=1": lambda: changed(replaced(groups=2)),
    "(Dcls1d) pads by itself, before and after; nearest: padding=0, of x = torch.nn.functional.pad": lambda: changed(
        replaced(padding=2)
    ),
    "(Dcls1d) has stride=2; nearest: stride=1": lambda: changed(replaced(stride=2)),
    "reads what has 0 zeros before the first timestep, and 5 taps; nearest: x = torch.nn.functional.pad(x, (4, 0))": (
        lambda: changed(padded(0, 0))
    ),
    "(Dcls1d) reads what has 2 more timesteps at its end than layers before it": lambda: changed(padded(4, 2)),
    "layer 'hidden0': network.delays: spikes would be 20 timesteps old, of 14: at most 14 ages": lambda: changed(
        lambda _: None, ages=21
    ),
    "(Dcls1d) has a mask of its positions": lambda: changed(
        lambda module: nn.utils.prune.random_unstructured(module.convs[0], "P", 0.5)
    ),
    "(LIFNode) never spikes, and keeps no potentials that could be read: set store_v_seq=True": lambda: changed(
        lambda module: setattr(module, "read", zoo.neuron.LIFNode(v_threshold=1e9, step_mode="m"))
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(said: str) -> None:
    module, spikes = REFUSED[said]()
    with pytest.raises(MimdsimError) as refused:
        mimdsim.from_torch(module, spikes)
    assert said in str(refused.value)


def test_dropout_of_every_timestep_before_delays_is_refused() -> None:
    module, spikes = changed(lambda module: setattr(module.drops[0], "p", 0.0), dropout=0.5)
    module.drops[1] = nn.Dropout(0.5)
    with pytest.raises(MimdsimError, match="dropout would draw for each age of a spike anew"):
        mimdsim.from_torch(module, spikes)


@pytest.mark.parametrize("version", ["gauss", "max", "v1"])
def test_the_package_computes_what_its_stand_in_here_does(version: str) -> None:
    package = pytest.importorskip("DCLS.construct.modules")
    how = {"kernel_count": 2, "dilated_kernel_size": 6, "version": version}
    theirs, ours = package.Dcls1d(5, 4, **how), dcls.Dcls1d(5, 4, **how)
    ours.load_state_dict(theirs.state_dict())
    names = ("in_channels", "kernel_count", "stride", "padding", "dilated_kernel_size", "groups", "version")
    assert all(getattr(ours, name) == getattr(theirs, name) for name in (*names, "padding_mode"))
    x = torch.rand(3, 5, 12)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)
