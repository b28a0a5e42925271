"""A convolution over time with a weight and a learned position for every synapse, as the package dcls has it
(Dcls1d of DCLS.construct.modules 0.1.1: arguments, parameters and what they mean; tests/frameworks/test_torch_delays.py
compares both where that is installed)."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn: Any = torch.nn


class Dcls1d(nn.Module):  # type: ignore[misc]
    """weight [out, in / groups, kernel_count], P [1, *weight], of which 0 is the middle tap, SIG like P."""

    __module__ = "DCLS.construct.modules"

    def __init__(
        self, in_channels: int, out_channels: int, kernel_count: int, stride: int = 1, padding: int = 0,
        dilated_kernel_size: int = 1, groups: int = 1, bias: bool = True, version: str = "gauss",
    ) -> None:  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels, self.kernel_count, self.version = (
            in_channels, out_channels, kernel_count, version,
        )  # fmt: skip
        self.stride, self.padding, self.dilated_kernel_size = (stride,), (padding,), (dilated_kernel_size,)
        self.groups, self.padding_mode = groups, "zeros"
        shape = out_channels, in_channels // groups, kernel_count
        self.weight = nn.Parameter(torch.empty(shape))
        self.P = nn.Parameter(torch.empty(1, *shape))
        wide = version in ("gauss", "max")
        self.register_parameter("SIG", nn.Parameter(torch.full((1, *shape), 0.23)) if wide else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(out_channels)) if bias else None)
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        nn.init.normal_(self.P, 0, 0.5)
        self.clamp_parameters()

    def clamp_parameters(self) -> None:
        """To be called after an update."""
        with torch.no_grad():
            self.P.clamp_(-(self.dilated_kernel_size[0] // 2), self.dilated_kernel_size[0] // 2)

    def forward(self, x: Any) -> Any:
        taps = self.dilated_kernel_size[0]
        away = torch.arange(taps).reshape(-1, 1, 1, 1) - (self.P + taps // 2)
        if self.version == "gauss":
            share = (-0.5 * (away / (self.SIG.abs() + 0.27)) ** 2).exp()
        else:
            share = (1 + (self.SIG.abs() if self.version == "max" else 0) - away.abs()).relu()
        share = share / (share.sum(0) + 1e-7)
        kernel = (share * self.weight).sum(-1).permute(1, 2, 0)
        return nn.functional.conv1d(x, kernel, self.bias, self.stride, self.padding, 1, self.groups)
