#!/bin/bash
# Two trainers on halves of the data, started by the launcher, each with processes of its own that
# make batches; then one process averages their parameters. The last line has the losses.
set -e
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/lib:$PYTHONPATH
python -m paddle.distributed.launch --selected_gpus=0,1 --log_dir=logs "$here/shards_train.py" --steps 6
for rank in 0 1; do grep -q "trainer $rank of 2" logs/workerlog.$rank; done
python "$here/shards_average.py" trainer-0 trainer-1
