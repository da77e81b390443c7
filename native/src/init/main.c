/* The bunshin-init executable. It is only ever started by the library, as the keeper of an owner. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "init/init.h"
#include "keeper/keeper.h"

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "probe")) {
        printf("%s\n", cgroup_support(argv[2]));
        return 0;
    }
    if (argc == 4 && !strcmp(argv[1], "inside")) {
        int socket = atoi(argv[2]), memory_fd = atoi(argv[3]);
        size_t room = (size_t)(argv[3] + strlen(argv[3]) - argv[0]);
        memset(argv[0], 0, room);
        snprintf(argv[0], room, "bunshin-init");
        init_main_inside(socket, memory_fd);
    }
    if (argc != 5 || strcmp(argv[1], "keeper")) {
        fprintf(stderr, "bunshin-init is started by bunshin_gym; it does nothing by itself\n");
        return 2;
    }
    int socket = atoi(argv[2]);
    pid_t owner = (pid_t)atoi(argv[3]);
    char *state_path = strdup(argv[4]);
    if (!state_path)
        return 1;
    /* Workspaces see this command line as that of their pid 1: it must not tell where they lie. */
    size_t room = (size_t)(argv[4] + strlen(argv[4]) - argv[0]);
    memset(argv[0], 0, room);
    snprintf(argv[0], room, "bunshin-init");
    return keeper_main(socket, owner, state_path);
}
