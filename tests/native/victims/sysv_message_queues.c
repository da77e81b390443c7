/* Message queues: messages with their types in their order, limits, who sent and received last; full, empty, never used. */
#include "victim.h"
#include <sys/ipc.h>
#include <sys/msg.h>

struct message {
    long type;
    char text[9000];
};

static struct msqid_ds state_of(int id) {
    struct msqid_ds state;
    must(msgctl(id, IPC_STAT, &state));
    return state;
}

static void send(int id, long type, size_t length) {
    static struct message message;
    message.type = type;
    for (size_t i = 0; i < length; i++)
        message.text[i] = (char)(pattern((uint64_t)type + i) % 256);
    must(msgsnd(id, &message, length, IPC_NOWAIT));
}

static void receive(int id, long wanted, long type, size_t length) {
    static struct message message;
    ssize_t got = must(msgrcv(id, &message, sizeof message.text, wanted, IPC_NOWAIT));
    expect(message.type == type && (size_t)got == length, "type %ld, %zd bytes, not %ld, %zu", message.type, got, type, length);
    for (size_t i = 0; i < length; i++)
        expect(message.text[i] == (char)(pattern((uint64_t)type + i) % 256), "byte %zu of type %ld", i, type);
}

int main(void) {
    int gone = (int)must(msgget(IPC_PRIVATE, 0600));
    int queue = (int)must(msgget(0x3e01, IPC_CREAT | 0640)), full = (int)must(msgget(IPC_PRIVATE, 0600));
    int empty = (int)must(msgget(0x3e03, IPC_CREAT | 0604)), unused = (int)must(msgget(0x3e04, IPC_CREAT | 0600));
    must(msgctl(gone, IPC_RMID, NULL));
    pid_t sender = fork();
    if (sender == 0) {
        send(queue, 5, 10);
        send(empty, 1, 3);
        send(queue, 3, 0);
        send(queue, 900000000000, 8192);
        send(queue, 5, 11);
        send(queue, 1, 1);
        _exit(0);
    }
    child_ends_well(sender);
    pid_t receiver = fork();
    if (receiver == 0) {
        receive(queue, 1, 1, 1);
        receive(empty, 0, 1, 3);
        _exit(0);
    }
    child_ends_well(receiver);
    struct msqid_ds state = state_of(full);
    state.msg_qbytes = 4096;
    must(msgctl(full, IPC_SET, &state));
    for (int i = 0; i < 4; i++)
        send(full, 7, 1024);
    struct message message = {.type = 1};
    expect(msgsnd(full, &message, 1, IPC_NOWAIT) == -1 && errno == EAGAIN, "it is not full");
    ready();
    go();
    expect(msgget(0x3e01, 0) == queue && msgget(0x3e03, 0) == empty && msgget(0x3e04, 0) == unused, "ids");
    expect(msgctl(gone, IPC_STAT, &state) == -1, "the removed one is back");
    state = state_of(queue);
    expect(state.msg_qnum == 4 && state.msg_cbytes == 8192 + 21 && state.msg_perm.mode == 0640, "%lu messages", state.msg_qnum);
    expect(state.msg_lspid == sender && state.msg_lrpid == receiver, "sent by %d, received by %d", state.msg_lspid, state.msg_lrpid);
    state = state_of(empty);
    expect(state.msg_qnum == 0 && state.msg_lspid == sender && state.msg_lrpid == receiver && state.msg_stime && state.msg_rtime, "the empty one");
    state = state_of(unused);
    expect(state.msg_qnum == 0 && !state.msg_lspid && !state.msg_lrpid && !state.msg_stime && !state.msg_rtime, "the unused one");
    state = state_of(full);
    expect(state.msg_qbytes == 4096 && state.msg_qnum == 4 && state.msg_lspid == getpid() && !state.msg_lrpid, "the full one");
    expect(msgsnd(full, &message, 1, IPC_NOWAIT) == -1 && errno == EAGAIN, "it is not full any more");
    receive(queue, -4, 3, 0);
    receive(queue, 0, 5, 10);
    receive(queue, 5, 5, 11);
    receive(queue, 0, 900000000000, 8192);
    expect(msgrcv(queue, &message, 9000, 0, IPC_NOWAIT) == -1 && errno == ENOMSG, "there is another");
    long own = (long)(own_number() >> 2) | 1;
    send(unused, own, 100);
    nap(0.05);
    receive(unused, 0, own, 100);
    must(msgctl(queue, IPC_RMID, NULL));
    ok();
}
