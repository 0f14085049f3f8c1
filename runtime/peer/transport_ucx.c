/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over UCX: active messages between endpoints that are reached by address and port. The library is
 * loaded when it is needed, so that an agent without peers neither needs it nor has its threads and handlers. */
#include "config.h"

#include "runtime/peer/transport.h"

#include <errno.h>

#ifndef HAVE_UCX

static int start(struct tpck_transport **transport, const struct tpck_transport_events *events, void *context,
		 uint16_t port, struct tpck_error *err)
{
	(void)transport;
	(void)events;
	(void)context;
	(void)port;
	return tpck_error_set(err, ENOTSUP, "using UCX, which this agent was built without");
}

const struct tpck_transport_operations tpck_transport_ucx = {.name = "ucx", .start = start};

#else

#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "runtime/base/log.h"
#include "runtime/peer/address.h"

enum { MESSAGE_ID = 1, LISTENERS_MOST = 16, PORTS_TRIED = 16, LOCAL_MOST = 64, IDLE_TURNS = 16 };

/* clang-format off */
#define UCX_CALLS(X) \
	X(ucp_init_version) X(ucp_cleanup) X(ucp_config_read) X(ucp_config_modify) X(ucp_config_release) \
	X(ucp_worker_create) X(ucp_worker_destroy) X(ucp_worker_progress) X(ucp_worker_get_efd) X(ucp_worker_arm) \
	X(ucp_worker_set_am_recv_handler) X(ucp_listener_create) X(ucp_listener_destroy) X(ucp_listener_query) \
	X(ucp_listener_reject) X(ucp_ep_create) X(ucp_ep_close_nbx) X(ucp_am_send_nbx) X(ucp_am_recv_data_nbx) \
	X(ucp_request_check_status) X(ucp_request_free) X(ucs_status_string)
/* clang-format on */
#define FIELD(name) __typeof__(name) *name;
static struct {
	void *library;
	UCX_CALLS(FIELD)
} ucx;

struct ucx_link {
	struct tpck_link link; /* first */
	struct half *half;
	ucp_ep_h endpoint;
	void *closing;         /* the request of its close */
	unsigned requests;     /* that refer to it */
	bool open;             /* the user may use it */
	bool failed, told;     /* UCX says so; the user knows */
	bool closed;
	char why[96];
	struct ucx_link *next;
};

struct sending {
	struct ucx_link *link;
	void *token;
	char head[TPCK_TRANSPORT_HEAD_MAX];
};

struct receiving {
	struct ucx_link *link;
	void *place;
	size_t count, head_bytes;
	char head[TPCK_TRANSPORT_HEAD_MAX];
};

/* UCX's TCP has one address an interface, of IPv4 where there is one, and reaches addresses of that family only (1.13 to
 * 1.19: uct_tcp_iface_t's ifaddr and uct_tcp_iface_is_reachable(); UCX_TCP_AF_PRIO says which comes first). A connection
 * of the other family fails an assertion of the other side's (uct_tcp_cm_handle_conn_pkt()). So a node with both on one
 * interface has UCX twice, once for each family. */
struct half {
	struct tpck_transport *transport;
	ucp_context_h ucp;
	ucp_worker_h worker;
	int descriptor;
	unsigned links;        /* that use it */
};

struct listening {
	struct half *half;
	ucp_listener_h listener;
};

struct tpck_transport {
	const struct tpck_transport_events *events;
	void *context;
	struct half half[2];
	unsigned halves;       /* the last one is for IPv6 */
	unsigned turns;
	struct listening listening[LISTENERS_MOST];
	unsigned listeners;
	struct tpck_local local[LOCAL_MOST];
	char carriers[LOCAL_MOST][IF_NAMESIZE]; /* interfaces that UCX has looked at */
	size_t carrier_count;
	size_t locals;
	uint16_t port;
	struct ucx_link *links;
	bool stopping;
};

static int load(struct tpck_error *err)
{
	if (ucx.library)
		return 0;
	/* UCX's handlers of signals and hooks into the allocation of memory are not wanted in the agent. */
	setenv("UCX_HANDLE_ERRORS", "none", 0);
	setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0);
	setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
	setenv("UCX_LOG_LEVEL", "fatal", 0);
	ucx.library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!ucx.library)
		return tpck_error_set(err, ENOENT, "loading UCX (%.200s)", dlerror());
#define FIND(name) \
	if (!(ucx.name = (__typeof__(ucx.name))dlsym(ucx.library, #name))) \
		return tpck_error_set(err, ENOSYS, "finding %s in UCX", #name);
	UCX_CALLS(FIND)
	return 0;
}

/* ---- links -------------------------------------------------------------------------------- */

static void on_error(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
	struct ucx_link *link = argument;

	(void)endpoint;
	link->failed = true;
	snprintf(link->why, sizeof link->why, "%s", ucx.ucs_status_string(status));
}

static struct ucx_link *link_new(struct half *half)
{
	struct tpck_transport *t = half->transport;
	struct ucx_link *link = calloc(1, sizeof *link);

	if (link) {
		link->half = half;
		half->links++;
		link->open = true;
		link->next = t->links;
		t->links = link;
	}
	return link;
}

static void link_begin_close(struct ucx_link *link)
{
	ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
	void *request;

	if (!link->endpoint) {
		link->closed = true;
		return;
	}
	request = ucx.ucp_ep_close_nbx(link->endpoint, &how);
	link->endpoint = NULL;
	link->closed = !request || UCS_PTR_IS_ERR(request);
	link->closing = link->closed ? NULL : request;
}

static void on_connection(ucp_conn_request_h request, void *argument)
{
	struct listening *at = argument;
	struct tpck_transport *t = at->half->transport;
	struct ucx_link *link = t->stopping ? NULL : link_new(at->half);
	ucp_ep_params_t how = {
		.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.conn_request = request, .err_mode = UCP_ERR_HANDLING_MODE_PEER, .err_handler = {on_error, link},
	};

	if (!link) {
		ucx.ucp_listener_reject(at->listener, request);
		return;
	}
	if (ucx.ucp_ep_create(at->half->worker, &how, &link->endpoint) != UCS_OK) {
		link->endpoint = NULL;
		link->open = false;
		return;
	}
	t->events->came(t->context, &link->link);
}

static int ucx_connect(struct tpck_transport *t, const char *address, struct tpck_link **out, struct tpck_error *err)
{
	struct sockaddr_storage where;
	ucp_ep_params_t how = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, .err_mode = UCP_ERR_HANDLING_MODE_PEER,
	};
	struct ucx_link *link;
	struct half *half;
	ucs_status_t status;
	int rc;

	if (tpck_address_read(address, &where, &how.sockaddr.addrlen))
		return tpck_error_set(err, EINVAL, "connecting to '%.60s'", address);
	/* Of a family that this node does not have, mostly. UCX would say so later. */
	rc = tpck_address_route((struct sockaddr *)&where, how.sockaddr.addrlen);
	if (rc)
		return tpck_error_set(err, -rc, "connecting to %s", address);
	half = &t->half[where.ss_family == AF_INET6 ? t->halves - 1 : 0];
	link = link_new(half);
	if (!link)
		return tpck_error_set(err, ENOMEM, "connecting to %s", address);
	how.sockaddr.addr = (struct sockaddr *)&where;
	how.err_handler = (ucp_err_handler_t){on_error, link};
	status = ucx.ucp_ep_create(half->worker, &how, &link->endpoint);
	if (status != UCS_OK) {
		link->endpoint = NULL;
		link->open = false;
		return tpck_error_set(err, ECONNREFUSED, "connecting to %s (%s)", address, ucx.ucs_status_string(status));
	}
	*out = &link->link;
	return 0;
}

static void ucx_close(struct tpck_transport *t, struct tpck_link *base)
{
	(void)t;
	((struct ucx_link *)base)->open = false; /* the rest is sweep()'s */
}

/* Closes what is not wanted or has failed, and frees what nothing refers to any more. */
static void sweep(struct tpck_transport *t)
{
	for (struct ucx_link *link = t->links; link; link = link->next) {
		if (link->failed && link->open) {
			link->open = false;
			t->events->gone(t->context, &link->link, link->why);
		}
		if (!link->open && !link->closed && !link->closing)
			link_begin_close(link);
		if (link->closing && ucx.ucp_request_check_status(link->closing) != UCS_INPROGRESS) {
			ucx.ucp_request_free(link->closing);
			link->closing = NULL;
			link->closed = true;
		}
	}
	for (struct ucx_link **place = &t->links; *place;) {
		struct ucx_link *link = *place;

		if (link->closed && !link->requests) {
			*place = link->next;
			link->half->links--;
			free(link);
		} else {
			place = &link->next;
		}
	}
}

/* ---- messages ----------------------------------------------------------------------------- */

static void send_done(struct sending *s)
{
	struct tpck_transport *t = s->link->half->transport;

	s->link->requests--;
	if (s->token)
		t->events->sent(t->context, s->link->open ? &s->link->link : NULL, s->token);
	free(s);
}

static void on_sent(void *request, ucs_status_t status, void *argument)
{
	(void)status; /* a failure is the endpoint's too, and its handler says it */
	ucx.ucp_request_free(request);
	send_done(argument);
}

static int ucx_send(struct tpck_transport *t, struct tpck_link *base, const void *head, size_t head_bytes,
		    const void *bytes, size_t count, void *token)
{
	struct ucx_link *link = (struct ucx_link *)base;
	struct sending *s = link->open && !link->failed ? calloc(1, sizeof *s) : NULL;
	ucp_request_param_t how = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_AM_SEND_FLAG_REPLY, .cb.send = on_sent, .user_data = s,
	};
	void *request;

	(void)t;
	if (!s)
		return -ENOTCONN;
	s->link = link;
	s->token = token;
	memcpy(s->head, head, head_bytes);
	link->requests++;
	request = ucx.ucp_am_send_nbx(link->endpoint, MESSAGE_ID, s->head, head_bytes, bytes, count, &how);
	if (UCS_PTR_IS_ERR(request)) {
		link->requests--;
		free(s);
		return -ENOTCONN;
	}
	if (!request)
		send_done(s);
	return 0;
}

static void receive_done(struct receiving *r, bool whole)
{
	struct tpck_transport *t = r->link->half->transport;

	r->link->requests--;
	t->events->arrived(t->context, r->link->open ? &r->link->link : NULL, r->head, r->head_bytes, r->place, r->count,
			   whole && r->link->open);
	free(r);
}

static void on_received(void *request, ucs_status_t status, size_t length, void *argument)
{
	(void)length;
	ucx.ucp_request_free(request);
	receive_done(argument, status == UCS_OK);
}

static struct ucx_link *link_of(struct tpck_transport *t, ucp_ep_h endpoint)
{
	for (struct ucx_link *link = t->links; link; link = link->next)
		if (link->endpoint == endpoint && link->open)
			return link;
	return NULL;
}

static ucs_status_t on_message(void *argument, const void *head, size_t head_bytes, void *data, size_t count,
			       const ucp_am_recv_param_t *param)
{
	struct half *half = argument;
	struct tpck_transport *t = half->transport;
	struct ucx_link *link = param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? link_of(t, param->reply_ep) : NULL;
	ucp_request_param_t how = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA, .cb.recv_am = on_received,
	};
	struct receiving *r;
	void *place = NULL, *request;

	if (!link || head_bytes > TPCK_TRANSPORT_HEAD_MAX)
		return UCS_OK;
	if (count) {
		place = t->events->place(t->context, &link->link, head, head_bytes, count);
		if (!place)
			return UCS_OK;
	}
	if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
		if (count)
			memcpy(place, data, count);
		t->events->arrived(t->context, &link->link, head, head_bytes, place, count, true);
		return UCS_OK;
	}
	r = calloc(1, sizeof *r);
	if (!r) {
		t->events->arrived(t->context, &link->link, head, head_bytes, place, count, false);
		return UCS_ERR_NO_MEMORY;
	}
	*r = (struct receiving){.link = link, .place = place, .count = count, .head_bytes = head_bytes};
	memcpy(r->head, head, head_bytes);
	how.user_data = r;
	link->requests++;
	request = ucx.ucp_am_recv_data_nbx(half->worker, data, place, count, &how);
	if (!request || UCS_PTR_IS_ERR(request))
		receive_done(r, !request);
	return UCS_INPROGRESS;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static bool ucx_progress(struct tpck_transport *t)
{
	bool all = t->halves == 1 || t->turns++ % IDLE_TURNS == 0, any = false;

	/* Each look costs system calls. While the other one moves bytes it is enough now and then, for somebody to connect. */
	for (unsigned i = 0; i < t->halves; i++)
		if (all || t->half[i].links)
			any = ucx.ucp_worker_progress(t->half[i].worker) != 0 || any;
	sweep(t);
	return any;
}

static void ucx_wait(struct tpck_transport *t, int wake, int timeout_ms)
{
	struct pollfd fds[] = {{.fd = wake, .events = POLLIN}, {.events = POLLIN}, {.events = POLLIN}};

	t->turns = 0; /* whatever comes next, all are looked at */
	for (unsigned i = 0; i < t->halves; i++) {
		if (ucx.ucp_worker_arm(t->half[i].worker) != UCS_OK)
			return;
		fds[1 + i].fd = t->half[i].descriptor;
	}
	(void)poll(fds, 1 + t->halves, timeout_ms);
}

static uint16_t ucx_port(struct tpck_transport *t)
{
	return t->port;
}

static void stop_listening(struct tpck_transport *t)
{
	while (t->listeners)
		ucx.ucp_listener_destroy(t->listening[--t->listeners].listener);
}

static void ucx_stop(struct tpck_transport *t)
{
	if (!t)
		return;
	t->stopping = true;
	for (struct ucx_link *link = t->links; link; link = link->next)
		link->open = false;
	/* Closing by force needs progress, but waits for nobody. */
	for (int i = 0; t->halves && t->links && i < 100000; i++)
		ucx_progress(t);
	stop_listening(t);
	for (unsigned i = 0; i < 2 && !t->links; i++) {
		if (t->half[i].worker)
			ucx.ucp_worker_destroy(t->half[i].worker);
		if (t->half[i].ucp)
			ucx.ucp_cleanup(t->half[i].ucp);
	}
	free(t);
}

/* For addresses of these families, as UCX_TCP_AF_PRIO names them. */
static ucs_status_t open_half(struct tpck_transport *t, const char *families)
{
	struct half *half = &t->half[t->halves];
	ucp_params_t features = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
		.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP, .name = "transpckptd",
	};
	ucp_worker_params_t threads = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
			      UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
		.id = MESSAGE_ID, .cb = on_message, .arg = half, .flags = UCP_AM_FLAG_WHOLE_MSG,
	};
	ucp_config_t *config;
	ucs_status_t status;

	/* An agent that comes after one that died at the same port finds its connections still waiting for their end. */
	if (!getenv("UCX_TCP_CM_REUSEADDR"))
		setenv("UCX_TCP_CM_REUSEADDR", "y", 0);
	/* ucp_config_modify() knows it by other names from version to version. */
	setenv("UCX_TCP_AF_PRIO", families, 1);
	status = ucx.ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return status;
	/* A peer on this very machine is one of a test, or in a container: shared memory is not the way to it. */
	if (!getenv("UCX_TLS"))
		(void)ucx.ucp_config_modify(config, "TLS", "^sm");
	half->transport = t;
	status = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &features, config, &half->ucp);
	ucx.ucp_config_release(config);
	if (status == UCS_OK)
		status = ucx.ucp_worker_create(half->ucp, &threads, &half->worker);
	if (status == UCS_OK)
		status = ucx.ucp_worker_get_efd(half->worker, &half->descriptor);
	if (status == UCS_OK)
		status = ucx.ucp_worker_set_am_recv_handler(half->worker, &handler);
	t->halves += status == UCS_OK;
	return status;
}

static ucs_status_t listen_at(struct tpck_transport *t, struct half *half, const struct sockaddr *address,
			      socklen_t bytes)
{
	struct listening *at = &t->listening[t->listeners];
	ucp_listener_params_t how = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = {address, bytes}, .conn_handler = {on_connection, at},
	};
	ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
	ucs_status_t status;

	at->half = half;
	status = ucx.ucp_listener_create(half->worker, &how, &at->listener);
	if (status != UCS_OK)
		return status;
	t->listeners++;
	status = ucx.ucp_listener_query(at->listener, &attributes);
	if (status == UCS_OK)
		t->port = ntohs(attributes.sockaddr.ss_family == AF_INET6
					? ((struct sockaddr_in6 *)&attributes.sockaddr)->sin6_port
					: ((struct sockaddr_in *)&attributes.sockaddr)->sin_port);
	return status;
}

/* At all addresses of the one family, and where there is another at each of the other's: UCX takes no connection of IPv4's
 * at a socket of IPv6's, and one for all of IPv6 would have the port for both. */
static ucs_status_t listen_on(struct tpck_transport *t, uint16_t port)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_ANY)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
	bool only_six = t->locals && t->local[0].address.ss_family == AF_INET6;
	ucs_status_t status;

	if (only_six)
		return listen_at(t, &t->half[t->halves - 1], (struct sockaddr *)&six, sizeof six);
	status = listen_at(t, &t->half[0], (struct sockaddr *)&four, sizeof four);
	for (size_t i = 0; i < t->locals && status == UCS_OK && t->listeners < LISTENERS_MOST; i++) {
		if (t->local[i].address.ss_family != AF_INET6)
			continue;
		six = *(const struct sockaddr_in6 *)&t->local[i].address;
		six.sin6_port = htons(t->port);
		status = listen_at(t, &t->half[t->halves - 1], (struct sockaddr *)&six, sizeof six);
		/* One that is somebody else's at this address only; another one of this node's own may do. */
		if (status != UCS_OK && (status != UCS_ERR_BUSY || port)) {
			char text[TPCK_TRANSPORT_ADDRESS] = "";

			(void)tpck_address_print((struct sockaddr *)&six, t->port, text, sizeof text);
			tpck_log_warn("not listening for others at %s: %s", text, ucx.ucs_status_string(status));
			status = UCS_OK;
		}
	}
	return status;
}

static ucs_status_t listen_somewhere(struct tpck_transport *t, uint16_t port)
{
	ucs_status_t status = UCS_ERR_BUSY;

	for (int i = 0; i < PORTS_TRIED && status == UCS_ERR_BUSY; i++) {
		stop_listening(t);
		status = listen_on(t, port);
		if (port)
			break;
	}
	return status;
}

/* Whether an interface has addresses of both families: of those the one of IPv4 hides the other from UCX. */
static bool is_hidden(const struct tpck_transport *t)
{
	for (size_t i = 0; i < t->locals; i++)
		for (size_t k = 0; k < i; k++)
			if (t->local[i].address.ss_family == AF_INET6 && t->local[k].address.ss_family == AF_INET &&
			    strcmp(t->local[i].interface, t->local[k].interface) == 0)
				return true;
	return false;
}

static ucs_status_t open_halves(struct tpck_transport *t)
{
	bool both = is_hidden(t);
	ucs_status_t status = open_half(t, both ? "inet" : "inet,inet6");

	if (status == UCS_OK && both && open_half(t, "inet6") != UCS_OK) {
		tpck_log_warn("nodes that have IPv6 only are not reached: UCX cannot be started a second time, for IPv6");
		while (t->locals && t->local[t->locals - 1].address.ss_family == AF_INET6)
			t->locals--;
	}
	return status;
}

/* UCX takes interfaces that have a carrier when it is started, and no others later. */
static bool ucx_outdated(struct tpck_transport *t)
{
	return tpck_address_has_more_carriers(t->carriers, t->carrier_count);
}

static int start(struct tpck_transport **out, const struct tpck_transport_events *events, void *context, uint16_t port,
		 struct tpck_error *err)
{
	struct tpck_transport *t;
	ucs_status_t status;
	int rc = load(err);

	if (rc)
		return rc;
	t = calloc(1, sizeof *t);
	if (!t)
		return tpck_error_set(err, ENOMEM, "starting UCX");
	t->events = events;
	t->context = context;
	t->locals = tpck_address_local(t->local, LOCAL_MOST);
	t->carrier_count = tpck_address_carriers(t->carriers, LOCAL_MOST);
	status = open_halves(t);
	if (status == UCS_OK)
		status = listen_somewhere(t, port);
	if (status != UCS_OK) {
		ucx_stop(t);
		return tpck_error_set(err, EIO, "starting UCX (%s)", ucx.ucs_status_string(status));
	}
	*out = t;
	return 0;
}

const struct tpck_transport_operations tpck_transport_ucx = {
	.name = "ucx", .start = start, .port = ucx_port, .connect = ucx_connect, .send = ucx_send, .close = ucx_close,
	.progress = ucx_progress, .wait = ucx_wait, .stop = ucx_stop, .outdated = ucx_outdated,
};

#endif
