// A member dies: the others' calls in NVSHMEM's names, whose results nobody reads, end their programs with a word.

#include <gpunet_nvshmem.h>

#include "test.h"
#include <csignal>
#include <sys/wait.h>

static const int MEMBERS = 3;

__global__ void sum(long *numbers) { nvshmemx_long_sum_reduce_block(NVSHMEM_TEAM_WORLD, numbers, numbers + 1, 1); }

/* Each learns the id from its pipe; the first one writes it to all. */
static int member(int rank, const int (*ends)[2], bool on_host) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    alarm(60);
    setenv("NVSHMEM_SYMMETRIC_SIZE", "1M", 1);
    if (rank == 0) {
        nvshmemx_get_uniqueid(&id);
        for (int other = 1; other < MEMBERS; other++) IS(write(ends[other][1], &id, sizeof id), sizeof id);
    } else {
        IS(read(ends[rank][0], &id, sizeof id), sizeof id);
    }
    nvshmemx_set_attr_uniqueid_args(rank, MEMBERS, &id, &attr);
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) != NVSHMEMX_SUCCESS) return 2;
    long *numbers = (long *)nvshmem_malloc(2 * sizeof(long));
    for (int round = 0;; round++) {
        if (rank == MEMBERS - 1 && round == 5) raise(SIGKILL);
        numbers[1] = 1;
        if (on_host) nvshmem_barrier_all();
        else sum(numbers);
        // Never by a sum that a member is missing from.
        if (!on_host && numbers[0] != MEMBERS) return 3;
    }
}

static void all(bool on_host, const char *call) {
    int ends[MEMBERS][2], words[2];
    pid_t children[MEMBERS];
    OK(pipe(words));
    for (int rank = 0; rank < MEMBERS; rank++) OK(pipe(ends[rank]));
    for (int rank = 0; rank < MEMBERS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            dup2(words[1], 2);
            _exit(member(rank, ends, on_host));
        }
    }
    close(words[1]);
    static char said[65536];
    std::size_t len = 0;
    for (ssize_t n; (n = read(words[0], said + len, sizeof said - 1 - len)) > 0;) len += (std::size_t)n;
    said[len] = 0;
    for (int rank = 0; rank < MEMBERS; rank++) {
        int status = 0;
        IS(waitpid(children[rank], &status, 0), children[rank]);
        TRUE(WIFSIGNALED(status));
        IS(WTERMSIG(status), rank == MEMBERS - 1 ? SIGKILL : SIGABRT);
    }
    TRUE(std::strstr(said, call) != nullptr);
    close(words[0]);
    for (int rank = 0; rank < MEMBERS; rank++) close(ends[rank][0]), close(ends[rank][1]);
}

int main() {
    begin();
    all(true, "nvshmem_barrier_all failed");
    all(false, "nvshmemx_long_sum_reduce_block failed");
    return end("nvshmem_death");
}
