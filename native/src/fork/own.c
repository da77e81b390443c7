/* pid 1's own state: sessions, calls in progress, and its ends of their pipes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest/digest.h"
#include "fork/capture.h"
#include "fork/rebuild.h"

/* ---- capture ---- */

static struct bunshin_error *capture_output(struct capture *capture, const struct output *output, struct span *ret) {
    struct buffer kept = {0};
    struct bunshin_error *error = buffer_append(&kept, output->head, output->head_size);
    size_t half = output->limit / 2;
    for (size_t i = 0; !error && i < output->tail_size; i++)
        error = buffer_append(&kept, output->tail + (output->tail_start + i) % half, 1);
    if (!error)
        error = capture_heap(capture, kept.data, kept.size, ret);
    buffer_deinit(&kept);
    return error;
}

static struct bunshin_error *capture_call(struct capture *capture, const struct call *call, int32_t *ret) {
    struct image_call record = {
        .id = call->id,
        .kind = call->kind,
        .state = call->state,
        .pid = call->pid,
        .mark = call->mark,
        .exit_status = call->exit_status,
        .merged = call->merged,
        .limit = call->output.limit,
        .total = {call->output.total, call->part[0].total, call->part[1].total},
    };
    for (int stream = 0; stream < STREAM_COUNT; stream++)
        TRY(capture_own(capture, call->stream[stream], &record.stream[stream]));
    TRY(capture_own(capture, call->silent_stdin, &record.silent_stdin));
    TRY(capture_output(capture, &call->output, &record.output[0]));
    TRY(capture_output(capture, &call->part[0], &record.output[1]));
    TRY(capture_output(capture, &call->part[1], &record.output[2]));
    TRY(capture_text(capture, call->text ? call->text : "", &record.text));
    TRY(capture_heap(capture, call->status.data, call->status.size, &record.status));
    return capture_add(capture, TABLE_CALL, &record, sizeof record, ret);
}

struct bunshin_error *own_capture(struct capture *capture) {
    struct init *init = capture->init;
    int32_t running[3] = {IMAGE_NONE, IMAGE_NONE, IMAGE_NONE};
    for (struct call *call = init->calls; call; call = call->next) {
        int32_t index;
        TRY(capture_call(capture, call, &index));
        if (call->kind != CALL_EXEC && init->session[call->kind].running == call)
            running[call->kind] = index;
    }
    struct buffer digest = {0};
    struct bunshin_error *error = digest_save(init, &digest);
    if (!error)
        error = capture_heap(capture, digest.data, digest.size, &capture->digest);
    buffer_deinit(&digest);
    if (error)
        return error;
    for (int kind = CALL_SHELL; kind <= CALL_PYTHON; kind++) {
        const struct session *session = &init->session[kind];
        struct image_session record = {
            .kind = kind, .pid = session->pid, .running = running[kind], .last_status = session->last_status};
        TRY(capture_own(capture, session->command, &record.command));
        TRY(capture_own(capture, session->terminal, &record.terminal));
        TRY(capture_text(capture, session->cwd ? session->cwd : "/", &record.cwd));
        TRY(capture_heap(capture, session->exports.data, session->exports.size, &record.exports));
        TRY(capture_add(capture, TABLE_SESSION, &record, sizeof record, NULL));
    }
    return NULL;
}

/* ---- rebuild ---- */

static int take(struct rebuild *rebuild, int32_t description) {
    return description == IMAGE_NONE ? -1 : fcntl(rebuild_fd(rebuild, description), F_DUPFD_CLOEXEC, 3);
}

static struct bunshin_error *rebuild_call(struct rebuild *rebuild, const struct image_call *record, struct call **ret) {
    struct init *init = rebuild->init;
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return bunshin_error_no_memory();
    call->id = record->id;
    call->kind = (enum call_kind)record->kind;
    call->state = (enum call_state)record->state;
    call->reply = -1; /* who asked waits at the source */
    call->writer[0] = call->writer[1] = -1;
    call->pid = record->pid;
    call->mark = record->mark;
    call->exit_status = record->exit_status;
    call->merged = record->merged;
    call->reason_override = -1;
    call->started = init_now();
    call->deadline = call->give_up = INT64_MAX;
    call->next = init->calls;
    init->calls = call;
    *ret = call;
    for (int stream = 0; stream < STREAM_COUNT; stream++) {
        call->stream[stream] = take(rebuild, record->stream[stream]);
        if (call->stream[stream] >= 0) {
            fcntl(call->stream[stream], F_SETFL, O_NONBLOCK);
            TRY(init_watch(init, call->stream[stream]));
        }
    }
    call->silent_stdin = take(rebuild, record->silent_stdin);
    struct output *outputs[3] = {&call->output, &call->part[0], &call->part[1]};
    for (int i = 0; i < 3; i++) {
        outputs[i]->limit = record->limit;
        TRY(output_write(outputs[i], IMAGE_HEAP(rebuild->image, record->output[i]), record->output[i].size));
        outputs[i]->total = record->total[i];
    }
    TRY(buffer_append(&call->status, IMAGE_HEAP(rebuild->image, record->status), record->status.size));
    call->text = strdup((const char *)IMAGE_HEAP(rebuild->image, record->text));
    return call->text ? NULL : bunshin_error_no_memory();
}

struct bunshin_error *own_rebuild(struct rebuild *rebuild) {
    struct init *init = rebuild->init;
    struct image_header *image = rebuild->image;
    struct call *call = NULL;
    const struct image_session *sessions = image_at(image, TABLE_SESSION);
    const struct image_call *calls = image_at(image, TABLE_CALL);
    init->next_call = image->next_call;
    init->halted = image->halted != 0;
    init->settings.generation = image->generation + 1;
    /* Newest first in both: added from the end. */
    for (int64_t i = (int64_t)image->table[TABLE_CALL].count - 1; i >= 0; i--) {
        TRY(rebuild_call(rebuild, &calls[i], &call));
        for (uint64_t s = 0; s < image->table[TABLE_SESSION].count; s++)
            if (sessions[s].running == i)
                init->session[sessions[s].kind].running = call;
    }
    for (uint64_t s = 0; s < image->table[TABLE_SESSION].count; s++) {
        struct session *session = &init->session[sessions[s].kind];
        session->pid = sessions[s].pid;
        session->last_status = sessions[s].last_status;
        session->command = take(rebuild, sessions[s].command);
        session->terminal = take(rebuild, sessions[s].terminal);
        if (session->terminal >= 0)
            TRY(init_watch(init, session->terminal));
        free(session->cwd);
        session->cwd = strdup((const char *)IMAGE_HEAP(image, sessions[s].cwd));
        if (!session->cwd)
            return bunshin_error_no_memory();
        TRY(buffer_append(&session->exports, IMAGE_HEAP(image, sessions[s].exports), sessions[s].exports.size));
    }
    return digest_restore(init, IMAGE_HEAP(image, image->digest), image->digest.size);
}
