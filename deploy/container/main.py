"""What spark-submit runs: `spark-submit main.py run FILE` is `heliograph run FILE`."""

from heliograph.cli.app import main

if __name__ == "__main__":
    main()
