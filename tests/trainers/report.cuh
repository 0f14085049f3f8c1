// SPDX-License-Identifier: Apache-2.0
// A row for each step to a tracking server of one's own, by HTTP, as trainers with MLflow, ClearML or Aim do: TRACKER=ADDRESS:PORT.
#ifndef REPORT_CUH
#define REPORT_CUH
#include "ranks.cuh"

static void report(int rank, int step, float loss)
{
    const char *where = getenv("TRACKER");
    char host[64], body[96], request[256], answer[256];
    int port, length, got = 0;
    if (!where)
        return;
    if (sscanf(where, "%63[^:]:%d", host, &port) != 2)
        die("TRACKER wants ADDRESS:PORT");
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, host, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (sockaddr *)&to, sizeof to))
        die("the tracker does not answer");
    length = snprintf(body, sizeof body, "rank %d step %d loss %.9g", rank, step, loss);
    length = snprintf(request, sizeof request, "POST /rows HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", length, body);
    if (write(fd, request, (size_t)length) != length)
        die("the tracker does not listen");
    for (ssize_t n; (n = read(fd, answer + got, sizeof answer - 1 - (size_t)got)) > 0;)
        got += (int)n;
    close(fd);
    answer[got] = 0;
    if (!strstr(answer, body))
        die(std::string("the tracker says '") + answer + "'");
}
#endif
