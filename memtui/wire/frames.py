"""The messages between agent and viewer, as frozen values.

Bytes are `*_bytes`, monotonic nanoseconds of the monitored machine `*_ns`. A figure that cannot be had is None.
Optional[...] instead of X | None: these annotations are evaluated, also by Python 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional, TypeVar

from .histories import HistoryNews, HistoryPart

#: Raised by one when an older peer would misread a message; fields that are merely new do not raise it.
PROTOCOL = 1

#: Categories of `allocated_bytes`, in the order they are shown; `unattributed` is what is left and may be negative
#: where the classification is older than the counters.
CATEGORIES = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "activations",
    "temporaries",
    "inputs",
    "workspaces",
    "communication",
    "private_pools",
    "unattributed",
)

#: Where a training can be. The last two are seen on the training's stack, ten times a second, and stand in the place
#: of whichever other phase is under way.
PHASES = ("startup", "forward", "backward", "optimizer", "between", "evaluation", "checkpoint", "compilation")

#: A notice of an agent that was not there from the program's beginning: what it calls step 1 is none.
CAME_LATE = "the agent came while the program ran: steps are counted from there"


@dataclass(frozen=True)
class Device:
    """A device that the process uses, as torch names it. `device` is "cuda:0", "xpu:1", "mps:0" or "host"."""

    device: str
    kind: str  # cuda, rocm, xpu, mps, host
    name: str
    counters: str  # where the figures come from: "caching allocator", "mallinfo2", "rss", "driver"
    uuid: Optional[str] = None
    pci_bus_id: Optional[str] = None
    total_bytes: Optional[int] = None
    untested: bool = False  # never run on such hardware by the project
    multi_processor_count: Optional[int] = None
    max_threads_per_multi_processor: Optional[int] = None


@dataclass(frozen=True)
class Hello:
    """First message of an agent: who it is and what it watches."""

    protocol: int
    agent: str
    pid: int
    python: str
    torch: str
    argv: tuple[str, ...]
    cwd: str
    hostname: str
    time_ns: int
    wall_offset_ns: int  # wall clock = monotonic + this
    started_ns: int
    devices: tuple[Device, ...] = ()
    rank: Optional[int] = None
    world_size: Optional[int] = None
    notices: tuple[str, ...] = ()  # what the agent cannot see here and why, one line each
    executable: str = ""  # the interpreter's path, as it says itself
    local_rank: Optional[int] = None
    restarts: Optional[int] = None  # of an elastic launcher's ranks, all together, before this process


@dataclass(frozen=True)
class BlockSummary:
    """What the allocator's blocks say about fragmentation, measured `age_ns` before the frame."""

    age_ns: int
    num_segments: int
    num_blocks: int
    largest_free_block_bytes: int
    reusable_cache_bytes: int
    inactive_split_bytes: int
    private_pool_idle_bytes: int
    active_pending_free_bytes: int
    num_pinned_segments: int


@dataclass(frozen=True)
class Classification:
    """Categories measured at one instant, `age_ns` before the frame; they add up to `allocated_bytes` exactly."""

    age_ns: int
    allocated_bytes: int
    phase: str
    step: int
    categories: dict[str, int]
    tagged: dict[str, int] = field(default_factory=dict)  # of these, bytes of what the program has named itself
    largest_activation_bytes: Optional[int] = None  # where backward begins


@dataclass(frozen=True)
class DeviceFrame:
    """One device's counters at the frame's instant; peaks are of `allocated_bytes` unless named otherwise."""

    device: str
    allocated_bytes: Optional[int] = None
    reserved_bytes: Optional[int] = None
    active_bytes: Optional[int] = None
    requested_bytes: Optional[int] = None
    inactive_split_bytes: Optional[int] = None
    allocated_peak_bytes: Optional[int] = None  # since the program's last reset, else since its start
    reserved_peak_bytes: Optional[int] = None
    step_peak_bytes: Optional[int] = None  # of the step under way
    step_peak_exact: bool = False  # else a lower bound
    last_step_peak_bytes: Optional[int] = None
    last_step_peak_exact: bool = False
    last_step_peak_phase: Optional[str] = None
    last_step_peak_step: Optional[int] = None  # its number, the first being 1: not every step is read
    # Where every step is taken: the highest of those that have ended since the last frame without a boundary.
    highest_step_peak_bytes: Optional[int] = None
    highest_step_peak_step: Optional[int] = None  # its number, the first being 1
    highest_step_peak_phase: Optional[str] = None
    num_alloc_retries: Optional[int] = None
    num_ooms: Optional[int] = None
    num_segments: Optional[int] = None
    num_blocks: Optional[int] = None
    rss_bytes: Optional[int] = None  # host only: this is what the process occupies
    allowed_bytes: Optional[int] = None  # the most this process may reserve; None where it has set itself no cap
    blocks: Optional[BlockSummary] = None
    classification: Optional[Classification] = None

    def categories(self) -> dict[str, int] | None:
        """Bytes by category at the frame's instant; they add up to `allocated_bytes` exactly.

        What changed since the classification stands in `unattributed`, negative where memory was freed.
        None where nothing was classified or the allocator's figure is unknown.
        """
        if self.classification is None or self.allocated_bytes is None:
            return None
        figures = dict(self.classification.categories)
        moved = self.allocated_bytes - self.classification.allocated_bytes
        figures["unattributed"] = figures.get("unattributed", 0) + moved
        return figures


@dataclass(frozen=True)
class Frame:
    """All devices at one instant, and where the training is."""

    sequence: int
    time_ns: int
    late_ns: int
    step: int  # optimizer steps (or cycles of them) completed
    phase: str
    phase_since_ns: int
    devices: tuple[DeviceFrame, ...]
    step_since_ns: Optional[int] = None
    last_step_ns: Optional[int] = None
    boundary: Optional[str] = None
    lost_frames: int = 0  # frames this viewer was too slow to receive, so far
    agent_cpu_ns: int = 0  # the agent's own processor time, so far


@dataclass(frozen=True)
class Pinned:
    """A segment that cannot go back to the driver, and the largest of the live blocks that keep it."""

    address: int
    segment_bytes: int
    free_bytes: int
    largest_free_bytes: int
    num_live: int
    block_address: int
    block_bytes: int
    category: str  # "" where it is not known


@dataclass(frozen=True)
class LiveSite:
    """A call site, "file:line function" of the program's innermost frames, and what it allocated that is live."""

    text: str  # a line each, the innermost first
    size_bytes: int
    num_blocks: int


@dataclass(frozen=True)
class Failure:
    """What the allocator held at a request that it gave up, read before the exception unwound.

    `undecided_bytes` were born in the phase under way and are state, gradients or temporaries: which is not told in
    mid-phase; they are part of what is unattributed.
    """

    blocks: Optional[BlockSummary] = None  # None where they could not be read, or the program records a history
    classification: Optional[Classification] = None  # of that instant, by the owners of the last look
    undecided_bytes: int = 0
    pinned: tuple[Pinned, ...] = ()  # those with the most free bytes
    sites: tuple[LiveSite, ...] = ()  # of what was allocated while the agent recorded a step, the largest first
    site: str = ""  # "file:line function" of the program's innermost frame, where the thread runs Python
    settings: str = ""  # what the allocator was told in the environment
    expandable: Optional[bool] = None
    switched_to_eval: bool = False  # no model is in training mode, where one was when a backward pass began before
    cost_ns: int = 0


@dataclass(frozen=True)
class Event:
    """Something that happened once: oom, alloc_retry, new_peak, optimizer_state_appeared, discovery, agent_error...

    `step` is as a frame's: how many were completed then; of a peak, when it was reached.
    """

    name: str
    time_ns: int
    step: int
    phase: str
    device: Optional[str] = None
    figures: dict[str, int] = field(default_factory=dict)
    text: str = ""
    failure: Optional[Failure] = None  # of an oom


@dataclass(frozen=True)
class ParameterRun:
    """So many parameters of one shape and dtype, one after the other."""

    shape: tuple[int, ...]
    dtype: str  # torch's name, without "torch."
    device: str
    count: int


@dataclass(frozen=True)
class ParameterGroup:
    """A group of an optimizer: its plain options, and the parameters that are trained."""

    options: dict[str, Any]
    parameters: tuple[ParameterRun, ...]


@dataclass(frozen=True)
class Recipe:
    """What it takes to make an optimizer like one of the process, elsewhere. Values that are not plain are left out."""

    where: str  # module:class
    folder: str  # from which the module is imported; "" where Python has it
    attributes: dict[str, Any]
    groups: tuple[ParameterGroup, ...]


@dataclass(frozen=True)
class Optimizer:
    """An optimizer found in the process; bytes by device."""

    name: str
    options: dict[str, Any]  # those that decide its state: momentum, amsgrad, foreach, fused...
    trainable_bytes: dict[str, int]  # of the parameters it steps
    trainable_parameters: int
    state_bytes: Optional[dict[str, int]] = None  # None before its first step
    steps: int = 0
    recipe: Optional[Recipe] = None  # before its first step


@dataclass(frozen=True)
class Model:
    """What was discovered: root modules and optimizers."""

    time_ns: int
    roots: tuple[str, ...]  # class names
    parameters: int
    trainable_parameters: int
    parameter_bytes: dict[str, int]  # by device
    dtypes: dict[str, int]  # parameter bytes by dtype
    optimizers: tuple[Optimizer, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A phase of a recorded step begins before its event number `event`."""

    event: int
    phase: str


@dataclass(frozen=True)
class RecordedHeap:
    """The allocator at the beginning of a recorded step, and what it was asked for: enough to play the step again.

    Addresses and sizes count 512 bytes, addresses from `base_address`. A segment is (address, size, stream, small,
    expandable, private), the last three 0 or 1, streams numbered from 0, the default one; its parts that no block of
    the step and no pending one takes are free. `places`, `asked_bytes` and `streams` are of the step's blocks, in
    their order; asked is 0 where that is unknown and -1 in a private pool; no streams: all are of the default one.
    """

    base_address: int
    segments: tuple[tuple[int, ...], ...] = ()
    pending: tuple[tuple[int, ...], ...] = ()  # (address, size) of what is freed and still in use by another stream
    places: tuple[int, ...] = ()
    asked_bytes: tuple[int, ...] = ()
    streams: tuple[int, ...] = ()
    late: tuple[
        tuple[int, ...], ...
    ] = ()  # (block, event before which another stream was done with it), if not at once
    emptied: tuple[int, ...] = ()  # events before which segments went back to the device
    settings: dict[str, Any] = field(default_factory=dict)  # torch's own `allocator_settings`


@dataclass(frozen=True)
class RecordedStep:
    """Every allocation and every free of one device in one step, from torch's own history of it.

    Events are numbered from 0 in their order. A block is (born, died, bytes, category, name, site, module): born is the
    number of the event that allocated it, -1 where it was there before; died the one that freed it, -1 where it was
    still there at the end; the others are indices into `categories`, `names`, `sites` and `modules`, -1 where unknown.
    """

    device: str
    step: int  # as a frame's: so many were completed when it began
    time_ns: int  # when it began
    duration_ns: int
    cost_ns: int  # what switching the history on, the looks and reading it took of the training's time
    before_bytes: int  # allocated at the beginning; the blocks that were there before add up to it
    counted_peak_bytes: Optional[int]  # the allocator's own peak, where it rose in this step
    event_us: tuple[int, ...]  # of each event, since `time_ns`
    marks: tuple[Mark, ...]
    blocks: tuple[tuple[int, ...], ...]
    categories: tuple[str, ...]
    names: tuple[str, ...]  # of tensors: "layers.0.weight", "layers.0.weight (gradient)", "... exp_avg"
    sites: tuple[str, ...]  # call sites: "file:line function", the innermost first, a line each
    modules: tuple[str, ...]  # by the root's own names: "layers.0", "" for the root
    lost_events: int = 0  # older than what was kept
    notices: tuple[str, ...] = ()
    heap: Optional[RecordedHeap] = None  # None where events were lost, and from older agents


@dataclass(frozen=True, eq=False)  # told apart by which it is: comparing all of it would take long
class BackwardGraph:
    """What a backward pass is about to run through: autograd's functions, by what they say of themselves.

    A node is (op, sequence, outputs, shape of each output, then node and output of each edge): an index into `ops`;
    autograd's sequence number, -1 for a leaf; how many outputs its forward had; indices into `shapes`; the nodes that
    get the gradients of its inputs, as indices into `nodes` and the number of that node's output, -1 and -1 where none
    is wanted. The first `roots` nodes are those of the tensors that it begins with. A shape is (device, bytes of an
    element, dimensions...); `saved` names, for each op, what such a function keeps, with spaces between. `forward` is
    what was allocated and freed on each device since the step's forward began, without owners and call sites; empty
    where that was not recorded, as with very many blocks.
    """

    time_ns: int
    step: int
    roots: int
    ops: tuple[str, ...]
    saved: tuple[str, ...]
    devices: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    nodes: tuple[tuple[int, ...], ...]
    workspace_bytes: int = 0  # of cuBLAS, for each thread; 0 where that is not known
    cost_ns: int = 0
    forward: tuple[RecordedStep, ...] = ()


@dataclass(frozen=True)
class Tensor:
    """One live tensor, or `count` blocks that no tensor of the model owns and that are alike."""

    category: str
    size_bytes: int  # of all of them
    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    phase: str = ""  # of birth, where that is what is known
    count: int = 1


@dataclass(frozen=True)
class Tensors:
    """The largest live tensors of one device at one instant; all of them add up to `allocated_bytes`."""

    time_ns: int
    step: int
    phase: str
    device: str
    allocated_bytes: int
    tensors: tuple[Tensor, ...]  # the largest first
    others_count: int = 0
    others_bytes: int = 0
    cost_ns: int = 0


@dataclass(frozen=True, eq=False)  # told apart by which it is, as a graph
class Segments:
    """What one device's allocator holds, by address, at one instant.

    Addresses and sizes count 512 bytes, addresses from `base_address`. A segment is (address, size, stream, small,
    expandable, private, pieces): as in a RecordedHeap, and how many of `pieces` are its own, which follow in the order
    of addresses and fill it. A piece is (size, kind, blocks, name): of live blocks the kind is an index into
    `categories`, else FREE_PIECE or PENDING_PIECE; `blocks` of one category that lie side by side may be one piece;
    the name is an index into `names`, -1 where it is not known. Where there are too many, those of several categories
    become one too, of the category that has most of it (`mixed_blocks`), and small segments are left out (`others`).
    """

    time_ns: int
    step: int
    phase: str
    device: str
    allocated_bytes: int
    base_address: int = 0
    segments: tuple[tuple[int, ...], ...] = ()
    pieces: tuple[tuple[int, ...], ...] = ()
    categories: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # torch's own `allocator_settings`
    mixed_blocks: int = 0
    others_count: int = 0
    others_bytes: int = 0
    notice: str = ""  # why there are no segments
    cost_ns: int = 0


#: Kinds of pieces that nothing is allocated in: free ones, and those that another stream may still use.
FREE_PIECE, PENDING_PIECE = -1, -2


@dataclass(frozen=True)
class Bye:
    """Last message: the interpreter is shutting down. `exception` is the uncaught one's class, if any."""

    time_ns: int
    exception: Optional[str] = None
    text: str = ""


@dataclass(frozen=True)
class Refusal:
    """The agent will not talk to this viewer; `reason` is one line for the user."""

    reason: str


@dataclass(frozen=True)
class Request:
    """From viewer to agent: `name` is "hello" (first), "record" (the next step), "tensors", "segments", "unload" or
    "ping".

    "history" asks for the allocator's history of the next `steps`, with call stacks whatever they cost where `stacks`.
    """

    name: str
    protocol: int = PROTOCOL
    history: bool = True  # of "hello": whether the past is wanted
    passive: bool = False  # of "hello": nobody looks at what is sent, so that it counts as if nobody watched
    steps: int = 1
    stacks: bool = False


_Message = TypeVar("_Message")


def made(cls: type[_Message], values: dict[str, Any]) -> _Message:
    """An instance with these fields; the others have their defaults. Every one that has no default must be given.

    A frozen class's own `__init__` sets field after field through a function: a fifth of what a frame costs.
    """
    message = object.__new__(cls)
    message.__dict__.update(values)
    return message


MESSAGES = {
    "hello": Hello,
    "frame": Frame,
    "event": Event,
    "model": Model,
    "recorded_step": RecordedStep,
    "backward_graph": BackwardGraph,
    "tensors": Tensors,
    "history_news": HistoryNews,
    "history_part": HistoryPart,
    "segments": Segments,
    "bye": Bye,
    "refusal": Refusal,
    "request": Request,
}
