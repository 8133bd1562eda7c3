"""Names of the package, for type checkers; see __init__.py."""

from ._analyze import (
    Analysis as Analysis,
    Difference as Difference,
    LayerError as LayerError,
    OutputError as OutputError,
    analyze as analyze,
)
from ._base import (
    ArgumentError as ArgumentError,
    BackendError as BackendError,
    ConfigError as ConfigError,
    Context as Context,
    DataError as DataError,
    Error as Error,
    FileError as FileError,
    Interrupted as Interrupted,
    ModelError as ModelError,
    NoMemoryError as NoMemoryError,
    Tensor as Tensor,
    UnsupportedError as UnsupportedError,
    default_context as default_context,
    tensor as tensor,
)
from ._config import (
    Config as Config,
    ConfigKey as ConfigKey,
    check_config as check_config,
    default_config as default_config,
    explain_config as explain_config,
)
from ._data import (
    Batch as Batch,
    Data as Data,
)
from ._drop import (
    Drop as Drop,
)
from ._evaluate import (
    Evaluation as Evaluation,
    evaluate as evaluate,
)
from ._language import (
    Generation as Generation,
    Generator as Generator,
    Tokenizer as Tokenizer,
    convert as convert,
    generate as generate,
)
from ._lint import (
    Lint as Lint,
    LintNode as LintNode,
    lint as lint,
)
from ._model import (
    Model as Model,
    ModelInfo as ModelInfo,
    Node as Node,
    Value as Value,
    load as load,
    new as new,
    parse as parse,
)
from ._plugins import (
    Param as Param,
    Values as Values,
    add_criterion as add_criterion,
    add_observer as add_observer,
    add_quantizer as add_quantizer,
)
from ._prune import (
    PruneGroup as PruneGroup,
    PrunePoint as PrunePoint,
    PruneScan as PruneScan,
    Pruned as Pruned,
    PrunedLayer as PrunedLayer,
    prune as prune,
)
from ._quantize import (
    QuantizedModel as QuantizedModel,
    Quantizer as Quantizer,
    Step as Step,
    quantize as quantize,
)
from ._search import (
    Found as Found,
    SearchLayer as SearchLayer,
    SearchPoint as SearchPoint,
    search as search,
)
from ._session import (
    Session as Session,
)
from ._train import (
    Learner as Learner,
    Parameter as Parameter,
    TrainCheck as TrainCheck,
    TrainState as TrainState,
    train as train,
)

__version__: str
__all__: list[str]
