#!/bin/bash
# A pipeline of clicks: a log is written, a dataset reads it through a command, a model is saved and
# loaded by another process. The last line has the losses of the passes and the predictions.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p data
python "$here/clicks_log.py" 0 32 | head -n 32 > data/part-0
python "$here/clicks_log.py" 7 40 | tail -n 32 > data/part-1
python -u "$here/clicks_train.py" --data data --model model
python "$here/clicks_infer.py" model
