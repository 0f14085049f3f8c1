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
/* A node of this graph, or executable graph, is made or changed outside of a capture: it does what the call would. */
void tpck_cuda_graph_node_is(const void *handle, const struct tpck_call *call);
/* A node of this graph does what the child does (COPIED, as the child is now), or owns it: what is added to the child later belongs to this graph too.
 * CHANGED: this is an executable graph, whose node does from here on what the child does. */
enum tpck_cuda_graph_part { TPCK_PART_COPIED, TPCK_PART_OWNED, TPCK_PART_CHANGED };
void tpck_cuda_graph_holds(const void *handle, const void *child, enum tpck_cuda_graph_part part);
/* A graph, or executable graph, is made of that one. */
void tpck_cuda_graph_copied(const void *to, const void *graph);
/* An executable graph does from here on what that graph does, and stays the same one to inference. */
void tpck_cuda_graph_updated(const void *exec, const void *graph);
/* Whether a copy ends in memory of the host's. */
bool tpck_cuda_copies_to_host(const CUDA_MEMCPY3D *copy);
/* A kernel's node as a launch of it would be. */
void tpck_cuda_node_call(struct tpck_call *call, const CUDA_KERNEL_NODE_PARAMS *node);
/* Learns name and parameters of a function from the driver. */
void tpck_cuda_function_learn(CUfunction function);

#endif
