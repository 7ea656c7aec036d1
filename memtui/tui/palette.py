"""Themes: which colour each tenant, figure and level has."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Colors:
    """One theme. Colours are "#rrggbb"; a theme without colour has none and says everything by letter and weight."""

    name: str
    dark: bool
    background: str
    surface: str  # of dialogs, and of the free part of a bar
    text: str
    bright: str
    dim: str
    faint: str
    accent: str
    good: str
    warning: str
    bad: str
    allocated: str
    envelope: str
    reserved: str
    device: str
    capacity: str
    forecast: str
    tenants: dict[str, str] = field(default_factory=dict)
    mono: bool = False

    def tenant(self, key: str) -> str:
        """The colour of a tenant."""
        return self.tenants.get(key, self.dim)


DARK = Colors(
    name="dark",
    dark=True,
    background="#10151c",
    surface="#1a212b",
    text="#c3ccd8",
    bright="#f2f6fb",
    dim="#7f8b9b",
    faint="#465160",
    accent="#59c2ff",
    good="#7fd37f",
    warning="#ffb454",
    bad="#ff6b6b",
    allocated="#2f9fd8",
    envelope="#8fd6ff",
    reserved="#c9a0ff",
    device="#aab6c5",
    capacity="#ff6b6b",
    forecast="#ffb454",
    tenants={
        "parameters": "#5b8dee",
        "buffers": "#8fb3ff",
        "gradients": "#f29e4c",
        "optimizer_state": "#5fbf7f",
        "activations": "#c678dd",
        "temporaries": "#e5c453",
        "inputs": "#4fc4cf",
        "workspaces": "#b58863",
        "communication": "#2f8f9f",
        "private_pools": "#8488d0",
        "unattributed": "#d0869b",
        "allocated": "#2f9fd8",
        "active_pending_free": "#8a7f5c",
        "inactive_split": "#8d5b6c",
        "private_pool_idle": "#6b6f9c",
        "reusable_cache": "#566a80",
        "reserved": "#c9a0ff",
        "non_torch": "#93a1b5",
        "process": "#93a1b5",
        "other_processes": "#d1656e",
        "device_unattributed": "#79808a",
        "driver_reserved": "#5a6472",
        "device_free": "#2a3440",
        "other_tenant": "#79808a",
    },
)

LIGHT = Colors(
    name="light",
    dark=False,
    background="#fbfbf9",
    surface="#eceef0",
    text="#2b323b",
    bright="#05080c",
    dim="#66707d",
    faint="#b3bac3",
    accent="#0b6bb5",
    good="#1d7f36",
    warning="#a85a00",
    bad="#c4232d",
    allocated="#2f87c8",
    envelope="#0b4f86",
    reserved="#7b3fbf",
    device="#5c6773",
    capacity="#c4232d",
    forecast="#a85a00",
    tenants={
        "parameters": "#3f6fd1",
        "buffers": "#86a8ee",
        "gradients": "#e0832a",
        "optimizer_state": "#3f9e5f",
        "activations": "#a854c4",
        "temporaries": "#cfa818",
        "inputs": "#2fa3b0",
        "workspaces": "#9a6b45",
        "communication": "#2b8576",
        "private_pools": "#5f62b0",
        "unattributed": "#c05f7c",
        "allocated": "#2f87c8",
        "active_pending_free": "#a89b6c",
        "inactive_split": "#a3707f",
        "private_pool_idle": "#8286b8",
        "reusable_cache": "#9fb0c2",
        "reserved": "#7b3fbf",
        "non_torch": "#7c8998",
        "process": "#7c8998",
        "other_processes": "#cc5560",
        "device_unattributed": "#8b929b",
        "driver_reserved": "#a9b1ba",
        "device_free": "#e3e6ea",
        "other_tenant": "#8b929b",
    },
)

# Okabe and Ito's eight colours: told apart with every kind of colour vision; levels go by blue, orange, vermilion.
SAFE = Colors(
    name="colour-blind",
    dark=True,
    background="#0d0f12",
    surface="#1b1f24",
    text="#cfd4da",
    bright="#ffffff",
    dim="#8d949d",
    faint="#4a515a",
    accent="#56b4e9",
    good="#56b4e9",
    warning="#e69f00",
    bad="#ff7a2f",
    allocated="#0072b2",
    envelope="#56b4e9",
    reserved="#cc79a7",
    device="#e0e0e0",
    capacity="#ff7a2f",
    forecast="#e69f00",
    tenants={
        "parameters": "#0072b2",
        "buffers": "#7fb9d9",
        "gradients": "#e69f00",
        "optimizer_state": "#009e73",
        "activations": "#cc79a7",
        "temporaries": "#f0e442",
        "inputs": "#56b4e9",
        "workspaces": "#d55e00",
        "communication": "#00c795",
        "private_pools": "#4a90a4",
        "unattributed": "#e8b6d0",
        "allocated": "#0072b2",
        "active_pending_free": "#a8a03a",
        "inactive_split": "#8a5572",
        "private_pool_idle": "#4c5f78",
        "reusable_cache": "#6d7680",
        "reserved": "#cc79a7",
        "non_torch": "#a9b0b8",
        "process": "#a9b0b8",
        "other_processes": "#d55e00",
        "device_unattributed": "#8d949d",
        "driver_reserved": "#5c646d",
        "device_free": "#262b31",
        "other_tenant": "#8d949d",
    },
)

CONTRAST = Colors(
    name="contrast",
    dark=True,
    background="#000000",
    surface="#1c1c1c",
    text="#ffffff",
    bright="#ffffff",
    dim="#d0d0d0",
    faint="#909090",
    accent="#00ffff",
    good="#00ff5f",
    warning="#ffd700",
    bad="#ff5f5f",
    allocated="#00afff",
    envelope="#afffff",
    reserved="#ff87ff",
    device="#ffffff",
    capacity="#ff5f5f",
    forecast="#ffd700",
    tenants={
        "parameters": "#5f9fff",
        "buffers": "#afcfff",
        "gradients": "#ffaf00",
        "optimizer_state": "#00d75f",
        "activations": "#ff87ff",
        "temporaries": "#ffff5f",
        "inputs": "#00ffff",
        "workspaces": "#d7875f",
        "communication": "#00d7af",
        "private_pools": "#8787ff",
        "unattributed": "#ffafd7",
        "allocated": "#00afff",
        "active_pending_free": "#d7d787",
        "inactive_split": "#d787af",
        "private_pool_idle": "#afafff",
        "reusable_cache": "#8f9fb0",
        "reserved": "#ff87ff",
        "non_torch": "#d0d0d0",
        "process": "#d0d0d0",
        "other_processes": "#ff5f5f",
        "device_unattributed": "#b0b0b0",
        "driver_reserved": "#808080",
        "device_free": "#303030",
        "other_tenant": "#b0b0b0",
    },
)

# The sixteen colours exactly as rich counts them, so that a terminal with no more shows these and not near ones.
SIXTEEN = Colors(
    name="sixteen",
    dark=True,
    background="#000000",
    surface="#000000",
    text="#c0c0c0",
    bright="#ffffff",
    dim="#c0c0c0",
    faint="#808080",
    accent="#00ffff",
    good="#00ff00",
    warning="#ffff00",
    bad="#ff0000",
    allocated="#008080",
    envelope="#00ffff",
    reserved="#ff00ff",
    device="#c0c0c0",
    capacity="#ff0000",
    forecast="#ffff00",
    tenants={
        "parameters": "#0000ff",
        "buffers": "#008080",
        "gradients": "#ffff00",
        "optimizer_state": "#008000",
        "activations": "#ff00ff",
        "temporaries": "#808000",
        "inputs": "#00ffff",
        "workspaces": "#800000",
        "communication": "#008080",
        "private_pools": "#000080",
        "unattributed": "#800080",
        "allocated": "#008080",
        "active_pending_free": "#808000",
        "inactive_split": "#800080",
        "private_pool_idle": "#000080",
        "reusable_cache": "#808080",
        "reserved": "#ff00ff",
        "non_torch": "#c0c0c0",
        "process": "#c0c0c0",
        "other_processes": "#ff0000",
        "device_unattributed": "#808080",
        "driver_reserved": "#808080",
        "device_free": "#000000",
        "other_tenant": "#808080",
    },
)

MONO = Colors(
    name="no-colour",
    dark=True,
    background="#000000",
    surface="#000000",
    text="#ffffff",
    bright="#ffffff",
    dim="#ffffff",
    faint="#ffffff",
    accent="#ffffff",
    good="#ffffff",
    warning="#ffffff",
    bad="#ffffff",
    allocated="#ffffff",
    envelope="#ffffff",
    reserved="#ffffff",
    device="#ffffff",
    capacity="#ffffff",
    forecast="#ffffff",
    mono=True,
)

#: In the order in which `t` goes through them.
THEMES = (DARK, LIGHT, SAFE, CONTRAST, MONO)
BY_NAME = {colors.name: colors for colors in (*THEMES, SIXTEEN)}


def mix(first: str, second: str, share: float) -> str:
    """A colour between two, `share` of the way from the first to the second."""
    parts = (
        round(int(first[place : place + 2], 16) * (1 - share) + int(second[place : place + 2], 16) * share)
        for place in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02x}" for part in parts)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2), 0 to 1."""
    linear = []
    for place in (1, 3, 5):
        part = int(colour[place : place + 2], 16) / 255
        linear.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """The contrast of two colours (WCAG 2), 1 to 21."""
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def letter_on(colour: str) -> str:
    """A colour for a letter that stands on `colour`."""
    return max("#000000", "#ffffff", key=lambda letter: contrast(letter, colour))
