#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/records.h"
#include "digest/digest.h"
#include "init/init.h"

#define REPORT_PATIENCE_NS 2000000000ll /* for a session's report after an interrupt */
#define KEPT_CALLS 64                   /* ended calls whose later output is kept */

/* ---- birth and death ---- */

/* An idle shell that ends must not find a FIFO without a reader and wait. */
static void unlink_names(const struct call *call) {
    char path[64];
    for (int stream = STREAM_STDOUT; stream <= STREAM_COUNT && call->kind != CALL_EXEC; stream++) {
        session_path(call->kind, (enum stream)stream, path, sizeof path);
        unlink(path);
    }
}

static void close_stream(struct call *call, enum stream stream) {
    if (call->stream[stream] >= 0)
        close(call->stream[stream]);
    call->stream[stream] = -1;
}

static void close_writers(struct call *call) {
    for (int stream = STREAM_STDOUT; stream <= STREAM_STDERR; stream++) {
        if (call->writer[stream] >= 0)
            close(call->writer[stream]);
        call->writer[stream] = -1;
    }
}

static void call_destroy(struct init *init, struct call *call) {
    for (struct call **at = &init->calls; *at; at = &(*at)->next)
        if (*at == call) {
            *at = call->next;
            break;
        }
    for (int stream = 0; stream < STREAM_COUNT; stream++)
        close_stream(call, (enum stream)stream);
    close_writers(call);
    if (call->silent_stdin >= 0)
        close(call->silent_stdin);
    if (call->reply >= 0)
        close(call->reply);
    output_deinit(&call->output);
    output_deinit(&call->part[0]);
    output_deinit(&call->part[1]);
    buffer_deinit(&call->status);
    free(call->text);
    free(call);
}

/* Ended calls are forgotten, oldest first; one whose background job still writes keeps being drained as long as it lives. */
static void forget_old_calls(struct init *init) {
    size_t ended = 0;
    struct call *next;
    for (struct call *call = init->calls; call; call = next) { /* newest first */
        next = call->next;
        if (call->state != CALL_DONE)
            continue;
        ended++;
        bool silent = call->stream[STREAM_STDOUT] < 0 && call->stream[STREAM_STDERR] < 0;
        if (ended > KEPT_CALLS && silent)
            call_destroy(init, call);
    }
}

/* ---- reading ---- */

static struct bunshin_error *store(struct call *call, enum stream stream, const void *data, size_t size) {
    if (stream == STREAM_STATUS)
        return call->status.size + size < (1 << 22) ? buffer_append(&call->status, data, size) : NULL;
    TRY(output_write(&call->output, data, size));
    return output_write(&call->part[stream], data, size);
}

/*
 * Reads what is there. *ret_end is set when the last writer has gone. Unless `all`, one short read is enough: what comes
 * after it may have been written after something on the other stream, which then has its turn first.
 */
static struct bunshin_error *pump(struct call *call, enum stream stream, size_t most, bool all, bool *ret_end) {
    static char chunk[1 << 16];
    *ret_end = false;
    while (call->stream[stream] >= 0 && most) {
        ssize_t got = read(call->stream[stream], chunk, sizeof chunk < most ? sizeof chunk : most);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        if (got == 0) {
            *ret_end = true;
            break;
        }
        most -= (size_t)got;
        TRY(store(call, stream, chunk, (size_t)got));
        if (!all && (size_t)got < sizeof chunk)
            break;
    }
    return NULL;
}

struct bunshin_error *call_drain(struct init *init, struct call *call) {
    (void)init;
    bool end;
    for (int stream = 0; stream < STREAM_COUNT; stream++)
        TRY(pump(call, (enum stream)stream, (size_t)1 << 20, true, &end));
    return NULL;
}

void call_drain_all(struct init *init) {
    for (struct call *call = init->calls; call; call = call->next)
        bunshin_error_destroy(call_drain(init, call));
}

/* ---- answers ---- */

static void answer(struct call *call, int reply) {
    int reason = call->reason_override;
    int code = call->exit_status;
    if (call->kind == CALL_EXEC) {
        code = WIFSIGNALED(call->exit_status) ? 128 + WTERMSIG(call->exit_status) : WEXITSTATUS(call->exit_status);
        if (reason < 0)
            reason = WIFSIGNALED(call->exit_status) ? BUNSHIN_SIGNALED : BUNSHIN_EXITED;
    }
    if (reason < 0)
        reason = BUNSHIN_EXITED;
    if (reason == BUNSHIN_TIMEOUT)
        code = 124;
    struct wire message = {.verb = WIRE_RESULT};
    bool truncated = call->output.total > call->output.head_size + call->output.tail_size ||
                     call->part[0].total > call->part[0].head_size + call->part[0].tail_size ||
                     call->part[1].total > call->part[1].head_size + call->part[1].tail_size;
    message.argument[0] = code;
    message.argument[1] = reason | (truncated ? 1 << 8 : 0);
    message.argument[2] = (int64_t)call->id;
    message.argument[3] = init_now() - call->started;
    message.argument[4] = (int64_t)call->part[0].total;
    message.argument[5] = (int64_t)call->part[1].total;
    struct buffer body = {0};
    uint64_t sizes[3];
    size_t before;
    struct bunshin_error *error = buffer_extend(&body, sizeof sizes, NULL);
    struct output *outputs[3] = {&call->output, &call->part[0], &call->part[1]};
    for (int i = 0; !error && i < 3; i++) {
        before = body.size;
        error = output_take(outputs[i], &body);
        sizes[i] = body.size - before;
    }
    if (!error)
        error = buffer_append(&body, call->notice, strlen(call->notice) + 1);
    if (!error) {
        memcpy(body.data, sizes, sizeof sizes);
        message.payload = body.data;
        message.payload_size = body.size;
        error = wire_send(reply, &message);
    }
    if (error)
        wire_answer(reply, error);
    buffer_deinit(&body);
    call->notice[0] = '\0';
}

void call_finish(struct init *init, struct call *call) {
    if (call->state == CALL_DONE)
        return;
    call->state = CALL_DONE;
    close_stream(call, STREAM_STATUS);
    close_writers(call);
    unlink_names(call);
    if (call->silent_stdin >= 0)
        close(call->silent_stdin);
    call->silent_stdin = -1;
    struct session *session = call->kind == CALL_EXEC ? NULL : &init->session[call->kind];
    if (session && session->running == call) {
        session->running = NULL;
        halt_again(init, session);
    }
    if (call->reply >= 0) {
        answer(call, call->reply);
        close(call->reply);
        call->reply = -1;
    }
    forget_old_calls(init);
}

void call_send_output(struct init *init, struct wire *request) {
    int reply = request->fd_count ? request->fd[0] : -1;
    for (struct call *call = init->calls; call; call = call->next)
        if (call->id == (uint64_t)request->argument[0]) {
            bunshin_error_destroy(call_drain(init, call));
            answer(call, reply);
            return;
        }
    wire_answer(reply, bunshin_error_new(BUNSHIN_ERROR_INVALID, ENOENT, "no call %lld is remembered", (long long)request->argument[0]));
}

/* ---- running ---- */

struct order { /* a call as it was asked for */
    enum call_kind kind;
    const char *text;
    const char **argv;
    const char *cwd;
    const char **env;
    uint32_t env_count;
    uint64_t output_limit;
    bool merged, stdin_open;
};

static struct bunshin_error *copy_strings(const struct records *records, const char ***ret) {
    const char **copy = calloc(records->count, sizeof *copy);
    if (!copy)
        return bunshin_error_no_memory();
    memcpy(copy, records->string + 1, sizeof *copy * (records->count - 1));
    *ret = copy;
    return NULL;
}

static struct bunshin_error *read_order(const struct wire *request, struct order *ret) {
    struct records *records = malloc(sizeof *records);
    if (!records)
        return bunshin_error_no_memory();
    records_init(records, request->payload, request->payload_size);
    struct bunshin_error *error = NULL;
    *ret = (struct order){.output_limit = 1 << 20};
    bool named = false;
    while (!error && records_next(records)) {
        const char *name = records->count ? records->string[0] : "";
        const char *value = records->count > 1 ? records->string[1] : "";
        if (!named) {
            named = true;
            if (!strcmp(name, "shell"))
                ret->kind = CALL_SHELL;
            else if (!strcmp(name, "python"))
                ret->kind = CALL_PYTHON;
            else if (strcmp(name, "exec"))
                error = bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "no tool \"%s\"", name);
        } else if (!strcmp(name, "text"))
            ret->text = value;
        else if (!strcmp(name, "argv") && records->count > 1)
            error = copy_strings(records, &ret->argv);
        else if (!strcmp(name, "env") && records->count > 1) {
            ret->env_count = records->count - 1;
            error = copy_strings(records, &ret->env);
        } else if (!strcmp(name, "cwd"))
            ret->cwd = value;
        else if (!strcmp(name, "merged"))
            ret->merged = true;
        else if (!strcmp(name, "stdin-open"))
            ret->stdin_open = true;
        else if (!strcmp(name, "output-limit"))
            ret->output_limit = strtoull(value, NULL, 10);
    }
    free(records);
    if (!error && (ret->kind == CALL_EXEC ? !ret->argv : !ret->text))
        error = bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "the call says nothing to run");
    return error;
}

static uint64_t oom_count(const struct init *init) {
    uint64_t count;
    return inspect_cgroup(init, "memory.events", "memory.oom_control", "oom_kill ", &count) ? count : 0;
}

/* The workspace's environment with a call's own variables over it. */
static struct bunshin_error *merge_environment(struct init *init, const struct order *order, const char ***ret) {
    size_t base = init->settings.environment_count, used = 0;
    const char **merged = calloc(base + order->env_count + 1, sizeof *merged);
    if (!merged)
        return bunshin_error_no_memory();
    for (size_t i = 0; i < base; i++) {
        bool replaced = false;
        size_t name = strcspn(init->settings.environment[i], "=") + 1;
        for (uint32_t j = 0; j < order->env_count; j++)
            replaced |= !strncmp(init->settings.environment[i], order->env[j], name);
        if (!replaced)
            merged[used++] = init->settings.environment[i];
    }
    for (uint32_t j = 0; j < order->env_count; j++)
        merged[used++] = order->env[j];
    *ret = merged;
    return NULL;
}

static struct bunshin_error *start_exec(struct init *init, struct call *call, const struct order *order) {
    int out[2] = {-1, -1}, err[2] = {-1, -1}, in[2] = {-1, -1};
    const char **environment = NULL;
    struct bunshin_error *error = merge_environment(init, order, &environment);
    if (!error && (pipe2(out, O_CLOEXEC) || (!call->merged && pipe2(err, O_CLOEXEC))))
        error = bunshin_error_os("cannot start %s: pipe", order->argv[0]);
    if (!error && (order->stdin_open ? pipe2(in, O_CLOEXEC) != 0 : (in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0))
        error = bunshin_error_os("cannot start %s: standard input", order->argv[0]);
    bool missing = false;
    if (!error) {
        struct start start = {.argv = order->argv,
                              .environment = environment,
                              .cwd = order->cwd ? order->cwd : init->settings.cwd,
                              .cwd_required = order->cwd != NULL,
                              .fd = {in[0], out[1], call->merged ? out[1] : err[1]},
                              .new_session = true};
        error = start_process(init, &start, &call->pid, &missing);
        if (missing)
            snprintf(call->notice, sizeof call->notice, "the directory %.100s does not exist; the call ran in /", start.cwd);
    }
    free(environment);
    if (in[0] >= 0)
        close(in[0]);
    if (out[1] >= 0)
        close(out[1]);
    if (err[1] >= 0)
        close(err[1]);
    call->stream[STREAM_STDOUT] = out[0];
    call->stream[STREAM_STDERR] = err[0];
    call->silent_stdin = in[1];
    for (int stream = STREAM_STDOUT; !error && stream <= STREAM_STDERR; stream++)
        if (call->stream[stream] >= 0) {
            fcntl(call->stream[stream], F_SETFL, O_NONBLOCK);
            (void)fcntl(call->stream[stream], F_SETPIPE_SZ, 1 << 18);
            error = init_watch(init, call->stream[stream]);
        }
    return error;
}

static struct bunshin_error *busy(struct init *init, const struct session *session) {
    (void)init;
    const struct call *running = session->running;
    return bunshin_error_new(BUNSHIN_ERROR_BUSY, EBUSY,
                             "the %s is busy: it has run `%.120s` for %.1f s; wait for it, interrupt it, or use the exec tool",
                             session->kind == CALL_SHELL ? "shell" : "python session", running->text ? running->text : "",
                             (double)(init_now() - running->started) / 1e9);
}

static bool is_command_fault(const struct bunshin_error *error) {
    return error->errnum == ENOENT || error->errnum == EACCES || error->errnum == ENOEXEC || error->errnum == ENOTDIR ||
           error->errnum == E2BIG || error->errnum == ELOOP || error->errnum == ENAMETOOLONG;
}

void call_start(struct init *init, struct wire *request) {
    int reply = request->fd_count ? request->fd[0] : -1;
    struct order order = {0};
    struct bunshin_error *error = read_order(request, &order);
    struct call *call = NULL;
    init_reap(init); /* a session that has just ended is not written to */
    struct session *session = order.kind == CALL_EXEC ? NULL : &init->session[order.kind];
    if (!error && session && session->running)
        error = busy(init, session);
    if (!error) /* before the session, which may be born in this call */
        error = frozen_begin_call(init, order.kind, order.text, order.argv);
    if (!error && session)
        error = session_ensure(init, order.kind);
    if (!error && !(call = calloc(1, sizeof *call)))
        error = bunshin_error_no_memory();
    if (call) {
        call->id = ++init->next_call;
        call->kind = order.kind;
        call->reply = -1;
        call->silent_stdin = call->writer[0] = call->writer[1] = -1;
        call->reason_override = -1;
        call->merged = order.merged;
        for (int stream = 0; stream < STREAM_COUNT; stream++)
            call->stream[stream] = -1;
        call->output.limit = call->part[0].limit = call->part[1].limit = order.output_limit;
        call->started = init_now();
        call->deadline = request->argument[0] < 0 ? INT64_MAX : call->started + request->argument[0];
        call->give_up = INT64_MAX;
        call->text = strndup(order.text ? order.text : order.argv[0], 200);
        call->oom_before = oom_count(init);
        call->mark = kill_newest_pid();
        processes_before_call(init);
        call->next = init->calls;
        init->calls = call;
        error = order.kind == CALL_EXEC ? start_exec(init, call, &order) : session_send(init, session, call, order.text);
        if (error && order.kind == CALL_EXEC && is_command_fault(error)) {
            /* As a shell would put it: the caller's mistake is a result. */
            char text[BUNSHIN_MESSAGE_MAX + 1];
            int length = snprintf(text, sizeof text, "%s\n", error->message);
            call->exit_status = (error->errnum == ENOENT ? 127 : 126) << 8;
            bunshin_error_destroy(error);
            error = store(call, call->merged ? STREAM_STDOUT : STREAM_STDERR, text, (size_t)length);
            if (!error) {
                call->reply = reply;
                request->fd[0] = -1;
                call_finish(init, call);
                goto out;
            }
        }
        if (error) {
            if (session && session->running == call)
                session->running = NULL;
            unlink_names(call);
            call_destroy(init, call);
        }
    }
    if (error)
        wire_answer(reply, error);
    else {
        call->reply = reply;
        request->fd[0] = -1;
        bunshin_error_destroy(init_watch(init, reply)); /* who goes away is then not seen to, which is no more than that */
    }
out:
    free(order.argv);
    free(order.env);
}

void call_readable(struct init *init, struct call *call, enum stream stream) {
    bool end = false;
    bunshin_error_destroy(pump(call, stream, (size_t)1 << 18, false, &end));
    if (!end)
        return;
    if (stream == STREAM_STATUS) {
        struct session *session = &init->session[call->kind];
        if (!session->pid || !call->status.size || call->exited)
            return;
        /* A shell on its way out reports too; its death tells how the call ended. */
        if (call->state == CALL_DONE || call->status.data[0] == 'x')
            return;
        struct bunshin_error *error = call_drain(init, call);
        bunshin_error_destroy(error);
        session_report(session, call);
        if (oom_count(init) > call->oom_before && call->reason_override < 0)
            call->reason_override = BUNSHIN_OUT_OF_MEMORY;
        call_finish(init, call);
        return;
    }
    close_stream(call, stream);
}

void call_child_exited(struct init *init, pid_t pid, int status) {
    for (int kind = CALL_SHELL; kind <= CALL_PYTHON; kind++)
        if (init->session[kind].pid == pid) {
            struct call *call = init->session[kind].running;
            if (call && call->reason_override < 0 && oom_count(init) > call->oom_before)
                call->reason_override = BUNSHIN_OUT_OF_MEMORY;
            session_exited(init, &init->session[kind], status);
            return;
        }
    for (struct call *call = init->calls; call; call = call->next)
        if (call->kind == CALL_EXEC && call->pid == pid && call->state != CALL_DONE) {
            call->exited = true;
            call->exit_status = status;
            if (call->reason_override < 0 && oom_count(init) > call->oom_before)
                call->reason_override = BUNSHIN_OUT_OF_MEMORY;
            bunshin_error_destroy(call_drain(init, call));
            call_finish(init, call);
            return;
        }
}

/* ---- deadlines ---- */

void call_expire(struct init *init, struct call *call, int reason, const char *notice) {
    if (call->state != CALL_RUNNING)
        return;
    call->state = CALL_EXPIRING;
    call->reason_override = reason;
    call->give_up = init_now() + REPORT_PATIENCE_NS;
    snprintf(call->notice, sizeof call->notice, "%s", notice);
    if (call->kind == CALL_EXEC) {
        kill_call_tree(init, call->pid, call->mark);
        kill(call->pid, SIGKILL);
        return; /* its death ends the call */
    }
    session_interrupt(init, &init->session[call->kind], call);
    call->give_up = init_now() + REPORT_PATIENCE_NS;
}

void call_check_deadlines(struct init *init, int64_t now) {
    struct call *next;
    for (struct call *call = init->calls; call; call = next) {
        next = call->next;
        if (call->state == CALL_RUNNING && now >= call->deadline) {
            char notice[160];
            snprintf(notice, sizeof notice, "the call was stopped after %.1f s; what it had started was ended%s",
                     (double)(call->deadline - call->started) / 1e9,
                     call->kind == CALL_EXEC ? "" : ", the session is kept with its directory and variables");
            call_expire(init, call, BUNSHIN_TIMEOUT, notice);
        } else if (call->state == CALL_EXPIRING && now >= call->give_up) {
            /* It ignores even that: the session goes, and the next call gets a fresh one. */
            call->give_up = INT64_MAX;
            kill(call->pid, SIGKILL);
        }
    }
}

int64_t call_next_deadline(const struct init *init) {
    int64_t next = INT64_MAX;
    for (const struct call *call = init->calls; call; call = call->next) {
        if (call->state == CALL_RUNNING && call->deadline < next)
            next = call->deadline;
        if (call->state == CALL_EXPIRING && call->give_up < next)
            next = call->give_up;
    }
    return next;
}
