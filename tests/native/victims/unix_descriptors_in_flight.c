/* A descriptor that was sent but not received yet. */
#include "victim.h"
#include <sys/socket.h>

int main(void) {
    int pair[2], pipes[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    must(pipe(pipes));
    char control[CMSG_SPACE(sizeof(int))] = "", x = 'x';
    struct iovec part = {&x, 1};
    struct msghdr letter = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *item = CMSG_FIRSTHDR(&letter);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(item), &pipes[1], sizeof(int));
    must(sendmsg(pair[0], &letter, 0));
    close(pipes[1]);
    ready();
    go();
    letter.msg_controllen = sizeof control;
    must(recvmsg(pair[1], &letter, 0));
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&letter)), sizeof got);
    must(write(got, "through", 7));
    char text[16] = "";
    expect(read(pipes[0], text, 15) == 7 && !strcmp(text, "through"), "read %s", text);
    ok();
}
