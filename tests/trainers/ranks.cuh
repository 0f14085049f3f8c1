// SPDX-License-Identifier: Apache-2.0
// Who this process is among the ranks of a job, and how all of them get the id of one communicator.
#ifndef RANKS_CUH
#define RANKS_CUH
#include <cuda_runtime.h>
#include <nccl.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

[[noreturn]] static void die(const std::string &what)
{
    fprintf(stderr, "gpt_ranks: %s\n", what.c_str());
    exit(1);
}

#define CHECK(call) check_cuda((call), #call, __LINE__)
#define NCCL(call) check_nccl((call), #call, __LINE__)

static void check_cuda(cudaError_t e, const char *call, int line)
{
    if (e != cudaSuccess)
        die("line " + std::to_string(line) + ": " + call + ": " + cudaGetErrorString(e));
}

static void check_nccl(ncclResult_t e, const char *call, int line)
{
    if (e != ncclSuccess)
        die("line " + std::to_string(line) + ": " + call + ": " + ncclGetErrorString(e) + ": " + ncclGetLastError(nullptr));
}

struct Ranks {
    int rank = 0, world = 1, local = 0;
    int tensors = 1, stages = 1, copies = 1; // the world is their product
    int t = 0, p = 0, d = 0;                 // this rank's place in each; t runs fastest
    ncclComm_t comm = nullptr;               // of all ranks
    ncclComm_t tensor_comm = nullptr, stage_comm = nullptr, copy_comm = nullptr; // along one of them
    ncclComm_t model_comm = nullptr;         // of the ranks that hold one copy of the model

    static bool number(const char *name, int *to)
    {
        const char *value = name ? getenv(name) : nullptr;
        if (value)
            *to = atoi(value);
        return value != nullptr;
    }

    // torchrun, Open MPI, MPICH and Intel MPI, srun: the nearest launcher first
    void identify()
    {
        static const char *const names[][3] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                               {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
                                               {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};
        for (const auto &name : names)
            if (number(name[0], &rank) && number(name[1], &world)) {
                if (!number(name[2], &local))
                    local = rank;
                break;
            }
        if (world < 1 || rank < 0 || rank >= world)
            die("rank " + std::to_string(rank) + " of " + std::to_string(world));
    }

    static void all_of(int fd, void *bytes, size_t n, ssize_t (*move)(int, void *, size_t))
    {
        for (size_t done = 0; done < n;) {
            ssize_t k = move(fd, (char *)bytes + done, n - done);
            if (k <= 0)
                die("the connection for the id was lost");
            done += (size_t)k;
        }
    }

    void serve(const char *port, ncclUniqueId *id)
    {
        sockaddr_in four = {};
        sockaddr_in6 six = {};
        // Of both families, but for kernels that have one.
        int on = 1, off = 0, server = socket(AF_INET6, SOCK_STREAM, 0);
        bool both = server >= 0;
        six.sin6_family = AF_INET6, four.sin_family = AF_INET, six.sin6_port = four.sin_port = htons((uint16_t)atoi(port));
        if (!both)
            server = socket(AF_INET, SOCK_STREAM, 0);
        else
            setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(server, both ? (sockaddr *)&six : (sockaddr *)&four, both ? sizeof six : sizeof four) || listen(server, world))
            die(std::string("cannot listen at port ") + port);
        for (int i = 1; i < world; i++) {
            int fd = accept(server, nullptr, nullptr);
            if (fd < 0)
                die("accept failed");
            all_of(fd, id, sizeof *id, [](int to, void *p, size_t n) { return write(to, p, n); });
            close(fd);
        }
        close(server);
    }

    void ask(const char *host, const char *port, ncclUniqueId *id)
    {
        addrinfo hint = {}, *at;
        hint.ai_socktype = SOCK_STREAM;
        if (getaddrinfo(host, port, &hint, &at))
            die(std::string("no address of ") + host);
        for (int patience = 3000; patience--; usleep(20000))
            for (addrinfo *i = at; i; i = i->ai_next) {
                int fd = socket(i->ai_family, SOCK_STREAM, 0);
                if (fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen) == 0) {
                    all_of(fd, id, sizeof *id, [](int from, void *p, size_t n) { return read(from, p, n); });
                    close(fd);
                    freeaddrinfo(at);
                    return;
                }
                if (fd >= 0)
                    close(fd);
            }
        die(std::string("nobody answers at ") + host);
    }

    // Without a master's address, by a file that is named after the launcher, so that no earlier run's is taken for it.
    void by_file(const char *folder, ncclUniqueId *id)
    {
        const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
        std::string name = std::string(folder) + "/nccl_id." +
                           (job && step ? std::string(job) + "." + step : std::to_string(getppid())), part = name + ".part";
        FILE *f;
        if (rank == 0) {
            if (!(f = fopen(part.c_str(), "wb")) || fwrite(id, sizeof *id, 1, f) != 1 || fclose(f) ||
                rename(part.c_str(), name.c_str()))
                die("cannot write " + name);
        } else {
            for (int patience = 3000; !(f = fopen(name.c_str(), "rb")); usleep(20000))
                if (!patience--)
                    die("no " + name);
            if (fread(id, sizeof *id, 1, f) != 1)
                die("cannot read " + name);
            fclose(f);
        }
        id_file = name;
    }

    std::string id_file;
    bool chatty = false;

    void meet(const char *folder)
    {
        const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
        ncclUniqueId id;
        int devices;
        identify();
        CHECK(cudaGetDeviceCount(&devices));
        CHECK(cudaSetDevice(local % devices));
        if (rank == 0)
            NCCL(ncclGetUniqueId(&id));
        if (world > 1 && host && port)
            rank == 0 ? serve(port, &id) : ask(host, port, &id);
        else if (world > 1)
            by_file(folder, &id);
        if (chatty) // as who has several devices in one process must
            NCCL(ncclGroupStart());
        NCCL(ncclCommInitRank(&comm, world, id, rank));
        if (chatty)
            NCCL(ncclGroupEnd());
        if (rank == 0 && !id_file.empty())
            remove(id_file.c_str());
    }

    void arrange(int tp, int pp)
    {
        int model = tp * pp;
        if (tp < 1 || pp < 1 || world % model)
            die("the layout does not go into " + std::to_string(world) + " ranks");
        tensors = tp, stages = pp, copies = world / model;
        t = rank % tp, p = rank / tp % pp, d = rank / model;
        if (model == 1) {
            copy_comm = comm;
            return;
        }
        NCCL(ncclCommSplit(comm, rank / tp, t, &tensor_comm, nullptr));
        NCCL(ncclCommSplit(comm, d * tp + t, p, &stage_comm, nullptr));
        NCCL(ncclCommSplit(comm, rank % model, d, &copy_comm, nullptr));
        NCCL(ncclCommSplit(comm, d, rank % model, &model_comm, nullptr));
    }

    void part()
    {
        for (ncclComm_t c : {tensor_comm, stage_comm, model_comm, copy_comm == comm ? nullptr : copy_comm, comm})
            if (c)
                NCCL(ncclCommDestroy(c));
    }

    bool watch = false;

    // Who watches does not hang with a network that fails: it looks for errors while it waits, as NCCL's guide has it, and
    // leaves, so that whoever started the job can end the others.
    void wait(cudaStream_t stream) const
    {
        while (watch && cudaStreamQuery(stream) == cudaErrorNotReady) {
            cudaGetLastError(); // which is "not ready" now
            for (ncclComm_t c : {comm, tensor_comm, stage_comm, copy_comm, model_comm}) {
                ncclResult_t e = ncclSuccess;
                if (c)
                    NCCL(ncclCommGetAsyncError(c, &e));
                if (e != ncclSuccess) {
                    fprintf(stderr, "gpt_ranks: rank %d: %s\n", rank, ncclGetErrorString(e));
                    _exit(4); // what is queued would be waited for
                }
            }
            usleep(100);
        }
        CHECK(cudaStreamSynchronize(stream));
    }

    // everybody has come this far, and what they had queued on `stream` is done
    void barrier(float *one, cudaStream_t stream)
    {
        NCCL(ncclAllReduce(one, one, 1, ncclFloat32, ncclMax, comm, stream));
        wait(stream);
    }
};

#endif
