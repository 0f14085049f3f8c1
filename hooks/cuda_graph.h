/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs by handle: an identity that is the same in every run, and how many operations were captured. */
#ifndef TPCK_HOOKS_CUDA_GRAPH_H
#define TPCK_HOOKS_CUDA_GRAPH_H

#include "hooks/cuda_driver.h"

/* A capture began or ended (graph NULL: it failed) on the stream. */
void tpck_cuda_graph_begin(struct tpck_thread *self, CUstream stream);
void tpck_cuda_graph_end(struct tpck_thread *self, CUstream stream, CUgraph graph);
/* An operation is about to be queued: if its stream captures, inference is told of a node. */
void tpck_cuda_graph_node(const struct tpck_call *call);
/* Whether any stream captures. */
bool tpck_cuda_capturing(void);
/* The token of a graph's launch. */
void tpck_cuda_graph_token(CUgraphExec graph, struct tpck_token *token);
/* Learns name and parameters of a function from the driver. */
void tpck_cuda_function_learn(CUfunction function);

#endif
