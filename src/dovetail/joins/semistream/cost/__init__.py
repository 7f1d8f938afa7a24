"""Cost models of the semi-stream joins: tuples per load, service rates, tuning, and the choice.

* `setting`: the input of a model (memory, master data, stream, policies, unit costs), and its prediction.
* `reads`: the cost of reading a store. `distribution`: how often rows and segments are requested, and the skew of a
  sample.
* `steady`: tuples that a load answers. `hybridjoin`, `scans`: the models of the algorithms.
* `models`: the models by name, and micro-batches. `choose`: the best sizes of an algorithm, and the best algorithm.

Pure Python on summaries of stream and store. Symbols follow the source: M memory, R_t master rows, v_R and v_S bytes
of a master row and a stream tuple, d rows of a segment, h_S waiting tuples, h_R cached rows, p_i the share of the
stream that asks for segment i, p_N the share that the cache answers, w tuples finished per iteration, T_w the window,
mu the service rate.
"""
