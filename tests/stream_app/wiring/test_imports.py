"""A process imports only what its work needs: a service over files starts without Kafka's clients."""

import subprocess
import sys


def test_a_service_over_files_imports_no_kafka_client() -> None:
    modules = ("stream_app.shell.supervision", "stream_app.wiring.workers", "stream_app.wiring.public")
    asked = f"import sys, {', '.join(modules)}; print({{'kafka', 'aiokafka'}} & sys.modules.keys() or 'none')"
    assert subprocess.check_output([sys.executable, "-c", asked], text=True) == "none\n"
