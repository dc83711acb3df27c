"""ARCHITECTURE.md is true: its list of modules, its rules, and every place and name that it mentions."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()

IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w/*]+\.(?:py|pyx|pxi|h)|[\w/]+/")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
WALK_LINES_MAX = 14  # from a request to its response
# In backticks too, and not names of ours; the first two are reserved.
NOT_OURS = {"security", "console", "pyspark_ottla"}


def section(title: str) -> str:
    """The text under a heading, up to the next heading of the same or a higher level."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", PAGE, re.MULTILINE)
    assert found, f"ARCHITECTURE.md has no section {title!r}"
    after = PAGE[found.end() :]
    return re.split(rf"^#{{1,{len(found[1])}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in a text, without headers."""
    lines = [line for line in FENCE.sub("", text).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rulers = {number for number, row in enumerate(cells) if set("".join(row)) <= set("-:")}
    return [row for number, row in enumerate(cells) if number not in rulers and number + 1 not in rulers]


def modules_named(pattern: str, base: Path) -> set[Path]:
    """The modules that a name stands for: a file, a pattern, or a directory with all that is in it."""
    if pattern.endswith("/"):
        return set((base / pattern).rglob("*.py"))
    return set(base.glob(pattern))


def listed_modules() -> tuple[set[Path], list[str]]:
    """The modules in the first column of the tables, and the names there for which there is no module.

    A name is relative to the one before it in its cell, to the packages in its section's heading, or to src/ottla.
    """
    listed: set[Path] = set()
    unknown: list[str] = []
    for heading, text in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE):
        packages = [SOURCE / name.strip() for name in heading.split(":")[0].split(",")]
        for row in rows(text):
            before: list[Path] = []
            for name in IN_BACKTICKS.findall(row[0]):
                if not FILE.fullmatch(name):
                    continue
                found = next(filter(None, (modules_named(name, base) for base in [*before, *packages, SOURCE])), None)
                if found is None:
                    unknown.append(f"{heading}: {name}")
                else:
                    listed |= found
                    before = [min(found).parent]
    return listed, unknown


def test_every_module_is_listed() -> None:
    listed, _ = listed_modules()
    sources = {path for suffix in ("py", "pyx", "pxi", "h") for path in SOURCE.rglob(f"*.{suffix}")}
    modules = {path for path in sources if path.name not in {"__init__.py", "__main__.py"}}
    missing = sorted(str(path.relative_to(SOURCE)) for path in modules - listed)
    assert not missing, f"give these a line in ARCHITECTURE.md: {missing}"


def test_every_listed_module_exists() -> None:
    _, unknown = listed_modules()
    assert not unknown, f"ARCHITECTURE.md lists what is not there: {unknown}"


def test_a_walk_fits_a_head() -> None:
    walks = {title: FENCE.findall(section(title)) for title in re.findall(r"^### (.*end to end)$", PAGE, re.MULTILINE)}
    assert len(walks) >= 9
    lengths = {title: len(walk.splitlines()) - 2 for title, fences in walks.items() for walk in fences}
    assert {title: length for title, length in lengths.items() if length > WALK_LINES_MAX} == {}


# -- calls that go up, and syncs -----------------------------------------------------------------------------------

# Where a function can be handed down to: all packages that the broker imports and that hold state.
BELOW_THE_BROKER = ["groups", "transactions", "replication", "cluster", "disk", "runtime", "storage", "store", "net"]


def modules_below_the_broker() -> list[str]:
    names = [*BELOW_THE_BROKER, "controller"]
    return sorted(
        path.relative_to(SOURCE).as_posix()
        for name in names
        for path in [SOURCE / f"{name}.py", *(SOURCE / name).rglob("*.py")]
        if path.exists()
    )


def aliases_of_functions(trees: list[ast.Module]) -> set[str]:
    """Names such as `Handler = Callable[...]`."""
    return {
        node.targets[0].id
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.unparse(node.value).startswith("Callable[")
    }


def functions_handed_to(constructor: ast.FunctionDef, is_function: re.Pattern[str]) -> set[str]:
    """The parameters of a constructor that are functions, and the public attributes that become one later."""
    arguments = [*constructor.args.args, *constructor.args.kwonlyargs]
    handed = {item.arg for item in arguments if item.annotation and is_function.search(ast.unparse(item.annotation))}
    set_later = {
        node.target.attr
        for node in ast.walk(constructor)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and not node.target.attr.startswith("_")
        and is_function.search(ast.unparse(node.annotation))
    }
    return handed | set_later


def test_every_function_that_is_handed_down_is_listed(trees: dict[str, ast.Module]) -> None:
    below = [trees[place] for place in modules_below_the_broker()]
    is_function = re.compile(rf"\b({'|'.join(sorted({'Callable', *aliases_of_functions(below)}))})\b")
    found = {
        f"{owner.name}.{name}"
        for tree in below
        for owner in tree.body
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_")
        for constructor in owner.body
        if isinstance(constructor, ast.FunctionDef) and constructor.name == "__init__"
        for name in functions_handed_to(constructor, is_function)
    }
    listed = {name for cells in rows(section("Calls that go up")) for name in IN_BACKTICKS.findall(cells[0])}
    assert listed == found, "ARCHITECTURE.md, `Calls that go up`, lists the functions that lower layers are handed"


def syncs(tree: ast.Module) -> bool:
    """Whether a module calls `file.sync()`, or calls `sync_directory` or `fsync` or hands one of them on."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="sync_directory" | "fsync"):
                return True
            case ast.Call(func=ast.Attribute(attr="sync"), args=[], keywords=[]):
                return True
    return False


def test_every_module_that_syncs_files_is_listed(trees: dict[str, ast.Module]) -> None:
    looked_at = ("disk.py", "storage/", "store/", "broker/", "runtime/", "net/", "controller/")
    found = {place for place, tree in trees.items() if place.startswith(looked_at) and syncs(tree)}
    listed = {name for cells in rows(section("Where files are synced")) for name in IN_BACKTICKS.findall(cells[0])}
    assert listed == found, "ARCHITECTURE.md, `Where files are synced`, lists the modules that sync"


# -- names --------------------------------------------------------------------------------------------------------


def test_the_modules_in_the_walks_exist() -> None:
    """In code blocks modules are written without backticks; a short name stands for a module of any package."""
    for block in FENCE.findall(PAGE):
        for name in re.findall(r"[\w/]+\.py\b", block):
            assert list(SOURCE.rglob(name)), f"ARCHITECTURE.md names {name}, which is not there"


def test_the_names_in_the_text_exist() -> None:
    """`Flush.run`, `begin_flush`, `wire(...)`: each part of a name in backticks is a word of our sources."""
    words = {word for path in SOURCE.rglob("*.py") for word in re.findall(r"\w+", path.read_text())}
    words |= {path.stem for path in SOURCE.rglob("*")}
    for name in IN_BACKTICKS.findall(FENCE.sub("", PAGE)):
        if re.fullmatch(r"@?\w+(\.\w+)*(\(.*\))?", name) and name not in NOT_OURS:
            parts = re.findall(r"\w+", name.split("(")[0])
            if parts[-1] not in {"py", "md", "c"}:
                assert set(parts) <= words, f"ARCHITECTURE.md names `{name}`, which is not in src"


# -- Kafka's nouns ------------------------------------------------------------------------------------------------

KAFKA_NOUNS = set(
    re.findall(
        r"\w+",
        """
        KafkaServer SocketServer Acceptor Processor RequestChannel KafkaRequestHandler KafkaApis LogManager Log
        ConnectionQuotas ClientQuotaManager ClientRequestQuotaManager ControllerMutationQuotaManager
        LogSegment OffsetIndex TimeIndex LogCleaner ReplicaManager Partition ISR ReplicaFetcher GroupCoordinator
        GroupMetadataManager TransactionCoordinator KafkaController ControllerChannelManager PartitionStateMachine
        ReplicaStateMachine TopicDeletionManager KafkaHealthcheck DynamicConfigManager KafkaProducer
        ProducerInterceptors Partitioner RecordAccumulator BufferPool Sender NetworkClient InFlightRequests
        Metadata KafkaAdminClient KafkaConsumer SubscriptionState ConsumerCoordinator Fetcher HeartbeatThread
        WorkerCoordinator
        """,
    )
)


def test_each_of_kafkas_nouns_has_its_place_or_a_reason_why_not() -> None:
    table = rows(section("For people who know Kafka's source"))
    nouns = [noun.strip() for cells in table for noun in cells[0].split(",")]
    assert len(nouns) == len(set(nouns))
    assert set(nouns) == {*KAFKA_NOUNS, "high watermark checkpoint"}
    for noun, places, remark in table:
        for place in IN_BACKTICKS.findall(places):
            assert (SOURCE / place).exists(), f"{noun}: {place} is not there"
        assert places != "–" or remark, f"{noun} has neither a place here nor a reason why not"
