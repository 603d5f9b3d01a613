"""The smallest whole program: a handler, a supervisor and a job. Run it: python examples/quickstart.py"""

from pathlib import Path
from tempfile import TemporaryDirectory

from conveyor_actors import JobContext, Supervisor, handler


@handler("square", queue="math")
def square(data: int, job: JobContext) -> int:
    return data * data


def main() -> None:
    with TemporaryDirectory() as folder:
        config = {
            "supervisor": {"data_dir": folder},
            "pools": {
                "default": {"workers": 2, "imports": ["quickstart"], "pythonpath": [Path(__file__).parent.as_posix()]}
            },
        }
        with Supervisor(config) as supervisor, supervisor.connect() as conveyor:
            jobs = conveyor.queue("math").add_many([("square", number) for number in range(10)])
            print([job.result(timeout="10s") for job in jobs])


if __name__ == "__main__":
    main()
