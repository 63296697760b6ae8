// Peers in other processes; shell scripts stand in for them.
#include "bench/gpu_peer.h"

#include <gtest/gtest.h>

#include <chrono>

namespace segue::bench {
namespace {

constexpr char kGreeting[] =
    R"(echo '{"peer": "fake", "version": "1", "form": "quick", "ready_s": 2.25, "memory_gib": 1}')";

std::vector<std::string> Shell(const std::string& script) { return {"sh", "-c", script}; }

TEST(GpuPeer, RunsForTheSecondsItIsTold) {
  // Answers with what it was asked, and with what it was asked before.
  const auto peer = GpuPeer::Start(Shell(std::string(kGreeting) +
                                         R"(; last=7
        while read seconds; do echo "{\"us\": [$last, $seconds]}"; last=$seconds; done)"));
  ASSERT_TRUE(peer.ok()) << peer.error().Message();
  EXPECT_EQ((*peer)->name(), "fake");
  EXPECT_EQ((*peer)->version(), "1 (quick)");
  EXPECT_EQ((*peer)->note(), "peer ready after 2.2 s with 1.0 GiB: 1 (quick)");
  EXPECT_EQ(*(*peer)->Run(0.5), (std::vector<double>{7, 0.5}));
  EXPECT_EQ(*(*peer)->Run(0.25), (std::vector<double>{0.5, 0.25}));
}

TEST(GpuPeer, WhatGoesWrongIsTold) {
  const auto error = [](const std::string& script) {
    const auto peer = GpuPeer::Start(Shell(script));
    return peer.ok() ? "" : peer.error().got;
  };
  EXPECT_EQ(error(R"(echo '{"error": "no memory"}')"), "no memory");
  EXPECT_EQ(error("echo hello"), "hello");
  EXPECT_EQ(error("echo '{}'"), "{}");
  EXPECT_EQ(error("exit 1"), "the end of its output");
  EXPECT_FALSE(GpuPeer::Start({"/nowhere/python"}).ok());
}

TEST(GpuPeer, AnswersWithoutTimesAreErrors) {
  for (const std::string answer :
       {R"({"us": []})", R"({})", R"({"us": [1, "x"]})", R"({"us": [0]})", R"({"us": 3})",
        R"({"error": "a fault"})", "3", ""}) {
    const auto peer =
        GpuPeer::Start(Shell(std::string(kGreeting) + "; read s; echo '" + answer + "'"));
    ASSERT_TRUE(peer.ok()) << peer.error().Message();
    EXPECT_FALSE((*peer)->Run(1).ok()) << answer;
  }
  const auto gone = GpuPeer::Start(Shell(kGreeting));
  ASSERT_TRUE(gone.ok());
  EXPECT_FALSE((*gone)->Run(1).ok());
}

TEST(PeerProcess, OneThatDoesNotAnswerIsEnded) {
  const auto start = std::chrono::steady_clock::now();
  const auto silent = PeerProcess::Start(Shell("exec sleep 600"), 0.1);
  ASSERT_FALSE(silent.ok());
  EXPECT_EQ(silent.error().got, "no answer");
  {
    const auto peer = PeerProcess::Start(Shell("echo ready; exec sleep 600"), 0.5);
    ASSERT_TRUE(peer.ok());
    EXPECT_EQ((*peer)->greeting(), "ready");
    EXPECT_EQ((*peer)->Ask("hello").error().got, "no answer");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace segue::bench
