"""A campaign's file, typed; errors name file, line, key and remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from simulator.conditions import Written
from simulator.documents import (
    Problem,
    Way,
    merge_values,
    name_place,
    refuse,
)
from simulator.errors import did_you_mean
from simulator.units import read_duration_s

from ...plan.fields import Option, find_keys
from ...plan.requests import REQUESTS
from ...plan.target import Price
from ...results.requirements import (
    Number,
    RequiredPart,
    Requirements,
)

EXAMPLES = {
    "steps": Path(__file__).with_name("example.yaml"),
    "requirements": Path(__file__).with_name("requirements.yaml"),
}
"""Example files: what they show -> where they are."""
REPEATS_OF_VERDICT = 3
"""The default repetitions of a campaign with requirements: one decides nothing."""

COMMANDS = {
    "insert": "insert", "query": "query", "mixed": "mixed", "capacity": "capacity", "tune": "tune",
    "clients": "clients", "steps": "insert", "disturb": "insert",
}  # fmt: skip
"""Kind of step -> the command of its result."""

SIZES = "sizes"
"""The key for sizes of the campaign, as in {quick: {repeats: 1}}."""

TARGET = "target"
"""The key of a labelled target that names the target in the config file."""

OWN = {
    TARGET: f"name the target below `targets`, with a label and `{TARGET}:`",
    "config": "give --config to the campaign",
    "output": "give --output to the campaign, whose folder has all results",
    "label": "the campaign labels its results: use labels of targets, variants and steps",
    "json": "the campaign's folder has all results",
    "verbose": "give --verbose to the campaign",
    **dict.fromkeys(
        ("live", "open", "prometheus"), "give it to the campaign, whose page shows all jobs"
    ),
    "debug": "give --debug to the campaign",
    "help": "it isn't an option of a job",
}
"""Options that the campaign sets itself -> what to do instead."""

_NAME = re.compile(r"\w[\w.+=-]{0,23}")


def _fill_empty(value: object) -> object:
    """An empty key means no options."""
    return {} if value is None else value


Options = Annotated[dict[str, Any], BeforeValidator(_fill_empty)]
"""Command-line options, by long name without dashes."""


def normalize(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by long name, whatever their form in the file."""
    return {str(key).replace("_", "-"): value for key, value in options.items()}


def find_option_problems(
    options: Mapping[str, Any], commands: Collection[str], way: Way, others: Iterable[str] = ()
) -> Iterator[Problem]:
    """Problems of options of one of these commands, at path `way` in the file. `others`: further keys allowed
    there."""
    keys: dict[str, list[Option]] = {}
    for name in commands:
        for key, own in find_keys(REQUESTS[name]).items():
            keys.setdefault(key, []).append(own)
    names = [*others, *(key for key in keys if key not in OWN)]
    for written, value in options.items():
        key, place = str(written).replace("_", "-"), (*way, str(written))
        if key in OWN:
            yield place, f"can't be given here: {OWN[key]}"
        elif key not in keys:
            hint = did_you_mean(key, names) or f" (known: {', '.join(names)})"
            yield place, f"no option of {' or '.join(commands)}{hint}"
        elif value is not None and len(found := _find_misreadings(value, keys[key])) == len(
            keys[key]
        ):
            yield place, found[0]


def _find_misreadings(value: object, kinds: Iterable[Option]) -> list[str]:
    """Why options of these kinds can't have the value."""
    found = []
    for kind in kinds:
        try:
            kind.read(value)
        except ValueError as error:
            found.append(str(error))
    return found


class Order(StrEnum):
    """The order of the turns of targets and variants."""

    INTERLEAVED = "interleaved"
    BLOCKS = "blocks"


class _Part(Written, BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Installation(_Part):
    """How a database is installed before its turns, as by `db install`, and removed after them."""

    variant: Literal["vendor", "local"] | None = None
    """The vendor's operator or chart, or this tool's own chart; default: the recipe's."""
    size: Literal["default", "small"] = "default"
    """Its resources."""
    image: str | None = None
    """An image to use instead of the recipe's."""
    storage_class: str | None = None
    """Storage class of the data volumes; default: the cluster's."""
    timeout: Annotated[float, BeforeValidator(read_duration_s)] = Field(900.0, gt=0)
    """Time limit of a step of the installation, in seconds."""


def _read_installation(value: object) -> object:
    """`true` is short for the recipe's defaults, `false` for none."""
    if isinstance(value, bool):
        return {} if value else None
    return value


def _check_distinct(counts: list[int]) -> list[int]:
    if len(set(counts)) < len(counts):
        raise ValueError("a number of nodes is given twice")
    return counts


Installing = Annotated[Installation | None, BeforeValidator(_read_installation)]
NodeCounts = Annotated[
    list[Annotated[int, Field(ge=1, le=1000)]],
    # One number is short for a series of one.
    BeforeValidator(lambda value: [value] if isinstance(value, int) else value),
    AfterValidator(_check_distinct),
    Field(min_length=1),
]


Command = Annotated[str, Field(min_length=1)]
"""A command for this machine's shell, run only with the user's permission."""


class Target(_Part):
    """A labelled target. All other keys are command-line options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    target: str | None = None
    """Its name in the config file; default: the label's."""
    nodes: NodeCounts | dict[Annotated[int, Field(ge=1)], str] | None = None
    """Numbers of nodes to install; or number -> the target with that many."""
    install: Installing = None
    """How it is installed, or `true`."""
    start: Command | None = None
    """The command that starts its server before each turn; needs `stop`."""
    stop: Command | None = None
    """The command that stops the server afterwards."""
    variants: list[str] | None = None
    """Names of its variants; default: all; `[]`: the bare target."""

    @property
    def options(self) -> dict[str, Any]:
        """The target's own options."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _has_both(self) -> Target:
        if (self.start is None) is not (self.stop is None):
            raise ValueError("start and stop belong together: give both, or neither")
        return self


class Step(_Part):
    """One command, which each target and variant runs in its turn."""

    insert: Options = {}
    """Options of the command."""
    query: Options = {}
    """The same."""
    mixed: Options = {}
    """The same."""
    capacity: Options = {}
    """The same."""
    tune: Options = {}
    """The same."""
    clients: Options = {}
    """The same."""
    steps: Options = {}
    """An insert on growing data."""
    disturb: Options = {}
    """An insert with disturbances."""
    label: str | None = None
    """The step's name in results; default: its kind."""
    _without: frozenset[str] = PrivateAttr(frozenset())
    _is_ranked: bool = PrivateAttr(default=True)

    @property
    def without(self) -> frozenset[str]:
        """Labels of targets that lack the step because they can't do it."""
        return self._without

    @property
    def is_ranked(self) -> bool:
        """Whether it ranks candidates; otherwise it only serves the verdict."""
        return self._is_ranked

    def leave_out(self, targets: Iterable[str]) -> Step:
        """The same step without these targets."""
        step = self.model_copy()
        step._without = frozenset(targets)
        return step

    def leave_unranked(self) -> Step:
        """The same step, without ranking."""
        step = self.model_copy()
        step._is_ranked = False
        return step

    def change(self, options: Options) -> Step:
        """The same step with these options overriding its own."""
        return self.model_copy(update={self.kind: merge_values(self.options, options)})

    @model_validator(mode="before")
    @classmethod
    def _read_name(cls, value: object) -> object:
        """A step's name alone is short for a step without options."""
        return {value: None} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_one_command(self) -> Step:
        if len(self.model_fields_set & set(COMMANDS)) != 1:
            raise ValueError(f"a step is one of {', '.join(COMMANDS)}, with its options below it")
        if self.kind in ("steps", "disturb") and self.kind not in self.options:
            raise ValueError(f"a step `{self.kind}` is an insert that has the option `{self.kind}`")
        refuse(find_option_problems(self.options, [self.command], (self.kind,)))
        return self

    @property
    def kind(self) -> str:
        """Its name in the file."""
        return next(name for name in COMMANDS if name in self.model_fields_set)

    @property
    def command(self) -> str:
        """The command's name."""
        return COMMANDS[self.kind]

    @property
    def options(self) -> dict[str, Any]:
        """The step's own options."""
        options: dict[str, Any] = getattr(self, self.kind)
        return options

    @field_validator("label")
    @classmethod
    def _check_label(cls, label: str | None) -> str | None:
        if label is not None and (problem := _find_name_problem(label)):
            raise ValueError(problem)
        return label

    @property
    def name(self) -> str:
        """Its name in results."""
        return self.label or self.kind


class PriceList(RequiredPart):
    """Prices of CPUs and disks, for targets without their own."""

    cpu_hour: Number | None = None
    """An hour of a CPU."""
    gb_month: Number | None = None
    """10^9 bytes stored for a month."""


def _read_targets(value: object) -> object:
    """A list of names is short for labels without options."""
    if isinstance(value, dict):
        return {name: _fill_empty(target) for name, target in value.items()}
    if not isinstance(value, list):
        return value
    names = [str(name) for name in value]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{name} is listed twice: to use a target again with other options, give it a label"
            )
    return {name: {} for name in names}


class Definition(_Part):
    """The content of a campaign's file."""

    title: str = Field("Campaign", min_length=1)
    """The title of the report."""
    targets: Annotated[
        dict[str, Target],
        BeforeValidator(_read_targets, json_schema_input_type=list[str] | dict[str, Target | None]),
    ] = Field(min_length=1)
    """Names of targets, as in `[embedded]`, or labels with options."""
    variants: dict[str, Options] = {}
    """Name -> command-line options; each target is measured with each variant."""
    options: Options = {}
    """Options of all steps."""
    steps: list[Step] = Field([], min_length=1)
    """None: they follow from the requirements."""
    requirements: Requirements | None = None
    """What the verdict judges."""
    price: PriceList = PriceList()
    """Prices of CPUs and disks, for targets without their own."""
    install: Installing = None
    """Applies to all targets without their own `install`."""
    nodes: NodeCounts | None = None
    """Numbers of nodes to install."""
    order: Order | None = None
    """None: in turns, unless databases are installed."""
    repeats: int = Field(1, ge=1, le=1000)
    """Default with requirements: three."""
    seed: int = Field(0, ge=0)
    """Decides the random order of the turns."""
    settle: Annotated[float, BeforeValidator(read_duration_s)] = Field(0.0, ge=0)
    """Pause between jobs, in seconds."""
    sizes: dict[str, dict[str, Any]] = {}
    """Size -> what `--size NAME` changes: keys of this file with other values; below `steps`, options of
    steps by name, including steps derived from requirements."""
    _of_size: Mapping[str, Options] = PrivateAttr(default_factory=dict)
    _source: tuple[Path, yaml.Node] | None = PrivateAttr(None)
    """The file and its content."""

    @property
    def of_size(self) -> Mapping[str, Options]:
        """The chosen size's options for steps that the file doesn't list, which follow from requirements."""
        return self._of_size

    @model_validator(mode="before")
    @classmethod
    def _repeat_for_verdict(cls, value: object) -> object:
        if isinstance(value, dict) and "requirements" in value:
            return {"repeats": REPEATS_OF_VERDICT, **value}
        return value

    def list_variants(self, label: str) -> list[str | None]:
        """The variants of a target; None: the bare target."""
        own = self.targets[label].variants
        return list(self.variants if own is None else own) or [None]

    @model_validator(mode="after")
    def _fits_together(self) -> Definition:
        refuse(self._find_problems())
        return self

    def _find_problems(self) -> Iterator[Problem]:
        if not self.steps and self.requirements is None:
            yield (), "key `steps` is missing (or `requirements`, from which steps follow)"
        names = [step.name for step in self.steps]
        for place, name in enumerate(names):
            if name in names[:place]:
                problem = f"{names.count(name)} steps are called {name}: give each a `label`"
                yield ("steps", place), problem
        for label, target in self.targets.items():
            installed, way = self.find_installation(label) is not None, ("targets", label)
            if installed and target.start is not None:
                yield way, "use either install, or start and stop, not both"
            if isinstance(target.nodes, dict) and installed:
                problem = "names a target for each number, and such targets are not installed: set"
                yield (*way, "nodes"), f"{problem} `install: false`"
            if isinstance(target.nodes, list) and not installed:
                problem = (
                    "the number to install: add `install: true`, or name a target for each number, as in"
                    " nodes: {1: small, 3: large}"
                )
                yield (*way, "nodes"), problem
            for name in target.variants or ():
                if name not in self.variants:
                    problem = f"there is no variant {name!r}{did_you_mean(name, self.variants)}"
                    known = f" (there are: {', '.join(self.variants) or 'none'})"
                    yield (*way, "variants"), problem + known
        if self.nodes and not any(map(self.find_installation, self.targets)):
            yield ("nodes",), "the number to install: add `install: true`"
        if self.steps:
            yield from self.find_option_problems()

    def find_option_problems(self) -> Iterator[Problem]:
        """What is wrong with the options of the commands that steps are."""
        for place, step in enumerate(self.steps):
            way = ("steps", place, step.kind)
            yield from find_option_problems(step.options, [step.command], way)
        commands = dict.fromkeys(step.command for step in self.steps)
        yield from find_option_problems(self.options, commands, ("options",))
        for label, target in self.targets.items():
            own = Target.model_fields
            yield from find_option_problems(target.options, commands, ("targets", label), own)
        for name, options in self.variants.items():
            yield from find_option_problems(options, commands, ("variants", name))

    def locate(self, way: Way) -> str:
        """`file:line: key: `, the beginning of an error message."""
        if self._source is None:
            return "".join(f"{step}: " for step in way)
        return name_place(*self._source, way)

    def locate_step(self, name: str) -> str:
        """The same for a step, with its name; it may follow from requirements."""
        if not self.has_steps:
            return f"{self.locate(('requirements',))}step {name}: "
        place = next(place for place, step in enumerate(self.steps) if step.name == name)
        return self.locate(("steps", place))

    @property
    def has_steps(self) -> bool:
        """Whether the file names the steps."""
        return not self._source or "steps" in {key.value for key, _ in self._source[1].value}

    def find_installation(self, label: str) -> Installation | None:
        """How a target is installed: by its own key, or else the campaign's; None if it already exists."""
        target = self.targets[label]
        if (
            "install" not in target.model_fields_set
            or target.install is None
            or self.install is None
        ):
            return target.install if "install" in target.model_fields_set else self.install
        overrides = {
            name: getattr(target.install, name) for name in target.install.model_fields_set
        }
        return self.install.model_copy(update=overrides)

    def list_nodes(self, label: str) -> list[int | None]:
        """The numbers of nodes of a target; None: as it is, or the recipe's default."""
        nodes = self.targets[label].nodes
        if nodes is not None:
            return list(nodes)
        return list(self.nodes) if self.nodes and self.find_installation(label) else [None]

    @property
    def prices(self) -> Price:
        """What CPUs and disks cost."""
        return Price(None, self.price.cpu_hour, self.price.gb_month)

    def find_order(self) -> Order:
        """The order of turns: interleaved, unless databases are installed; then each has all its turns in a
        row."""
        if self.order is not None:
            return self.order
        return Order.BLOCKS if any(map(self.find_installation, self.targets)) else Order.INTERLEAVED

    @field_validator("targets", "variants")
    @classmethod
    def _check_names(cls, named: Mapping[str, Any]) -> Mapping[str, Any]:
        refuse(((name,), problem) for name in named if (problem := _find_name_problem(name)))
        return named


def _find_name_problem(name: str) -> str | None:
    if _NAME.fullmatch(name):
        return None
    return f"{name!r} isn't a label: write up to 24 letters, digits, or any of . + = - _, and no spaces"
