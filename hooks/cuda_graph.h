/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs by handle: an identity that is the same in every run, and how many operations were captured. */
#ifndef TPCK_HOOKS_CUDA_GRAPH_H
#define TPCK_HOOKS_CUDA_GRAPH_H

#include "hooks/cuda_driver.h"
#include "runtime/track/communicator_calls.h"

/* A capture began or ended (graph NULL: it failed) on the stream. */
void tpck_cuda_graph_begin(struct tpck_thread *self, CUstream stream);
void tpck_cuda_graph_end(struct tpck_thread *self, CUstream stream, CUgraph graph);
/* Whether any stream captures. */
extern _Atomic int tpck_cuda_captures __attribute__((visibility("hidden")));
static inline bool tpck_cuda_capturing(void)
{
	return atomic_load_explicit(&tpck_cuda_captures, memory_order_relaxed) > 0;
}
/* An operation is about to be queued: if its stream captures, inference is told of a node. Whether it does. */
bool tpck_cuda_graph_node_note(const struct tpck_call *call);
static inline bool tpck_cuda_graph_node(const struct tpck_call *call)
{
	return __builtin_expect(tpck_cuda_capturing(), 0) && tpck_cuda_graph_node_note(call);
}
/* Such a node is a call on a communicator, to be counted at each launch. */
void tpck_cuda_graph_calls_add(const struct tpck_communicator_call *call);
/* The token and numbers of a graph's launch; returns the calls that it makes, for the caller to drop, or NULL. */
struct tpck_communicator_calls *tpck_cuda_graph_token(CUgraphExec graph, struct tpck_call *call);
/* A kernel's node as a launch of it would be. */
void tpck_cuda_node_call(struct tpck_call *call, const CUDA_KERNEL_NODE_PARAMS *node);
/* Learns name and parameters of a function from the driver. */
void tpck_cuda_function_learn(CUfunction function);

#endif
