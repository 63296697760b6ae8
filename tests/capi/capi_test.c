/* The C API as a C11 program sees it, through the shared library, on the CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "segue/segue.h"

static int failures = 0;

#define EXPECT(condition)                                                           \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition); \
      ++failures;                                                                   \
    }                                                                               \
  } while (0)

/* A failed expectation of success shows its message. */
#define EXPECT_OK(call)                                                  \
  do {                                                                   \
    if ((call) != SEGUE_OK) {                                            \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error.message); \
      ++failures;                                                        \
    }                                                                    \
  } while (0)

#define EXPECT_ERROR(call, text)                                         \
  do {                                                                   \
    EXPECT((call) == SEGUE_INVALID_ARGUMENT);                            \
    EXPECT(error.result == SEGUE_INVALID_ARGUMENT);                      \
    if (strcmp(error.message, (text)) != 0) {                            \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error.message); \
      ++failures;                                                        \
    }                                                                    \
  } while (0)

enum { kHeads = 3, kDim = 16, kText = 7, kImage = 40, kBatch = 2 };
static const float kCanary = -1e30f;

static float random_float(uint32_t* seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) / (float)(1 << 23) - 1.0f;
}

/* [kBatch, rows, q | k | v] and an output [kBatch, rows, kHeads, kDim]. */
typedef struct stream {
  int32_t rows;
  float* fused;
  float* out;
} stream;

static stream make_stream(int32_t rows, uint32_t seed) {
  stream s = {rows, NULL, NULL};
  const size_t width = (size_t)kHeads * kDim;
  const size_t count = (size_t)kBatch * (size_t)rows * width;
  s.fused = malloc(3 * count * sizeof(float));
  s.out = malloc(count * sizeof(float));
  for (size_t i = 0; i < 3 * count; ++i) s.fused[i] = random_float(&seed);
  for (size_t i = 0; i < count; ++i) s.out[i] = kCanary;
  return s;
}

static void free_stream(stream s) {
  free(s.fused);
  free(s.out);
}

/* part: 0 q, 1 k, 2 v. */
static segue_dense_view in_view(stream s, int part) {
  const int64_t width = kHeads * kDim;
  const segue_dense_view view = {{s.fused + part * width, 3 * width, 0}, s.rows * 3 * width};
  return view;
}

static segue_dense_view out_view(stream s) {
  const int64_t width = kHeads * kDim;
  const segue_dense_view view = {{s.out, width, 0}, s.rows * width};
  return view;
}

static const float* in_row(stream s, int part, int b, int row, int head) {
  return s.fused + ((size_t)(b * s.rows + row) * 3 + (size_t)part) * kHeads * kDim + head * kDim;
}

static float* out_row(stream s, int b, int row, int head) {
  return s.out + ((size_t)(b * s.rows + row) * kHeads + (size_t)head) * kDim;
}

static segue_attention_options make_options(void) {
  const segue_attention_options options = {.struct_size = sizeof options,
                                           .q_heads = kHeads,
                                           .kv_heads = kHeads,
                                           .head_dim = kDim,
                                           .softmax_scale = 0.25f,
                                           .causal = 0,
                                           .element_type = SEGUE_FLOAT32};
  return options;
}

static segue_attention_prefix_main make_joint(stream text, stream image) {
  const segue_attention_prefix_main joint = {.struct_size = sizeof joint,
                                             .batch = kBatch,
                                             .prefix_rows = text.rows,
                                             .main_rows = image.rows,
                                             .prefix_q = in_view(text, 0),
                                             .prefix_k = in_view(text, 1),
                                             .prefix_v = in_view(text, 2),
                                             .prefix_o = out_view(text),
                                             .main_q = in_view(image, 0),
                                             .main_k = in_view(image, 1),
                                             .main_v = in_view(image, 2),
                                             .main_o = out_view(image)};
  return joint;
}

/* The definition, in double precision; returns the largest error of a sequence's rows. */
static double sequence_error(stream text, stream image, int b, int text_rows) {
  double worst = 0.0;
  const int total = text_rows + image.rows;
  for (int head = 0; head < kHeads; ++head) {
    for (int row = 0; row < total; ++row) {
      const int is_text = row < text_rows;
      const stream from = is_text ? text : image;
      const int at = is_text ? row : row - text_rows;
      const float* q = in_row(from, 0, b, at, head);
      double sum = 0.0;
      double mean[kDim] = {0.0};
      for (int key = 0; key < total; ++key) {
        const stream source = key < text_rows ? text : image;
        const int key_at = key < text_rows ? key : key - text_rows;
        const float* k = in_row(source, 1, b, key_at, head);
        const float* v = in_row(source, 2, b, key_at, head);
        double score = 0.0;
        for (int i = 0; i < kDim; ++i) score += (double)q[i] * k[i];
        const double weight = exp(0.25 * score);
        sum += weight;
        for (int i = 0; i < kDim; ++i) mean[i] += weight * v[i];
      }
      const float* o = out_row(from, b, at, head);
      for (int i = 0; i < kDim; ++i) worst = fmax(worst, fabs(o[i] - mean[i] / sum));
    }
  }
  return worst;
}

/* Joint attention of two sequences with text of different lengths, then other lengths. */
static void test_joint_attention(void) {
  segue_error error = {.struct_size = sizeof error};
  const stream text = make_stream(kText, 1);
  const stream image = make_stream(kImage, 2);
  const segue_attention_options options = make_options();
  segue_attention_prefix_main joint = make_joint(text, image);
  const int32_t lengths[2][kBatch] = {{kText, 3}, {0, 5}};
  segue_attention_plan* plan = NULL;
  float* lse = NULL;
  for (int round = 0; round < 2; ++round) {
    joint.prefix_lengths = lengths[round];
    joint.zero_padding = 1;
    segue_attention_batch* batch = NULL;
    EXPECT_OK(segue_attention_batch_from_prefix_main(&joint, &options, &batch, &error));
    if (plan == NULL) {
      const segue_attention_plan_settings settings = {.struct_size = sizeof settings,
                                                      .place = SEGUE_CPU,
                                                      .batch = batch,
                                                      .options = &options,
                                                      .max_segments = 3,
                                                      .wants_lse = 1,
                                                      .threads = 2};
      EXPECT_OK(segue_attention_plan_create(&settings, &plan, &error));
      EXPECT(segue_attention_plan_workspace_bytes(plan) == 0);
      EXPECT(segue_attention_plan_max_query_rows(plan) == kBatch * (kText + kImage));
      EXPECT_OK(segue_attention_plan_prepare(plan, NULL, NULL, &error));
      lse = malloc(sizeof(float) * kHeads * kBatch * (kText + kImage));
    }
    EXPECT_OK(segue_attention_plan_set_batch(plan, batch, NULL, NULL, &error));
    const segue_attention_run run = {.struct_size = sizeof run,
                                     .batch = batch,
                                     .lse = lse,
                                     .lse_stride = kBatch * (kText + kImage)};
    EXPECT_OK(segue_attention_plan_run(plan, &run, &error));
    segue_attention_batch_destroy(batch);
    for (int b = 0; b < kBatch; ++b) {
      EXPECT(sequence_error(text, image, b, lengths[round][b]) < 1e-5);
      for (int row = lengths[round][b]; row < kText; ++row) {
        EXPECT(out_row(text, b, row, 1)[3] == 0.0f);
      }
    }
    /* Image rows come behind the text rows in use; padding last. */
    EXPECT(isfinite(lse[0]));
    EXPECT(lse[kBatch * (kText + kImage) - 1] == -INFINITY);
  }
  segue_attention_plan_destroy(plan);
  free(lse);
  free_stream(text);
  free_stream(image);
}

/* Tensor sets and segments written out by hand, lengths refreshed out of memory. */
static void test_segments_by_hand(void) {
  segue_error error = {.struct_size = sizeof error};
  const stream text = make_stream(kText, 3);
  const stream image = make_stream(kImage, 4);
  const segue_attention_options options = make_options();
  const segue_tensor_rows rows[2] = {{kBatch * kText, kBatch * kText},
                                     {kBatch * kImage, kBatch * kImage}};
  const char* admitted[2] = {"ref", "cpu"};
  const segue_attention_plan_settings settings = {.struct_size = sizeof settings,
                                                  .place = SEGUE_CPU,
                                                  .options = &options,
                                                  .max_sequences = 3,
                                                  .max_segments = 2,
                                                  .tensors = rows,
                                                  .tensor_count = 2,
                                                  .device_lengths = 1,
                                                  .backend = "ref",
                                                  .admitted = admitted,
                                                  .admitted_count = 2};
  segue_attention_plan* plan = NULL;
  EXPECT_OK(segue_attention_plan_create(&settings, &plan, &error));
  EXPECT(strcmp(segue_attention_plan_backend(plan), "ref") == 0);
  char described[200];
  const size_t length = segue_attention_plan_describe(plan, described, sizeof described);
  EXPECT(length > 0);
  EXPECT(strlen(described) == (length < sizeof described ? length : sizeof described - 1));
  EXPECT(segue_attention_plan_describe(plan, NULL, 0) == length);

  const segue_tensor_set tensors[2] = {
      {in_view(text, 0).rows, in_view(text, 1).rows, in_view(text, 2).rows, out_view(text).rows,
       kBatch * kText, kBatch * kText},
      {in_view(image, 0).rows, in_view(image, 1).rows, in_view(image, 2).rows, out_view(image).rows,
       kBatch * kImage, kBatch * kImage}};
  segue_segment_rows segments[4] = {{0, 0, 4, 0, 4},
                                    {1, 0, kImage, 0, kImage},
                                    {0, kText, kText, kText, kText},
                                    {1, kImage, kImage, kImage, kImage}};
  int32_t sequences = 2;
  EXPECT_OK(segue_attention_plan_refresh(plan, segments, &sequences, NULL, NULL, &error));
  const segue_attention_run run = {
      .struct_size = sizeof run, .tensor_count = 2, .tensors = tensors};
  EXPECT_OK(segue_attention_plan_run(plan, &run, &error));
  EXPECT(sequence_error(text, image, 0, 4) < 1e-6);
  EXPECT(sequence_error(text, image, 1, kText) < 1e-6);
  EXPECT(out_row(text, 0, 4, 0)[0] == kCanary);

  segue_attention_report report = {.struct_size = sizeof report, .error = -1};
  EXPECT_OK(segue_attention_plan_read_report(plan, NULL, NULL, &report, &error));
  EXPECT(report.error == 0 && report.description[0] == '\0');
  sequences = 4;
  EXPECT_OK(segue_attention_plan_read_report(plan, NULL, NULL, &report, &error));
  EXPECT(report.error != 0 && report.description[0] != '\0');
  EXPECT(segue_attention_plan_run(plan, &run, &error) == SEGUE_INVALID_ARGUMENT);
  EXPECT_OK(segue_attention_plan_set_lengths(plan, segments, 1, NULL, NULL, &error));
  EXPECT_OK(segue_attention_plan_run(plan, &run, &error));
  segments[3].q_begin = kImage + 1;
  EXPECT_ERROR(segue_attention_plan_set_lengths(plan, segments, 2, NULL, NULL, &error),
               "set attention lengths: sequence 1, segment 1, query rows: got 40 rows from 41, "
               "wanted rows inside the 80 of tensor set 1");
  segue_attention_plan_destroy(plan);
  free_stream(text);
  free_stream(image);
}

/* The other forms: what they describe themselves as. */
static void test_forms(void) {
  segue_error error = {.struct_size = sizeof error};
  const stream s = make_stream(kImage, 5);
  const segue_attention_options options = make_options();
  segue_attention_batch* batch = NULL;
  segue_attention_batch_view view = {.struct_size = sizeof view};

  const segue_attention_dense dense = {sizeof dense,  kBatch,        kImage,        kImage,
                                       in_view(s, 0), in_view(s, 1), in_view(s, 2), out_view(s)};
  EXPECT_OK(segue_attention_batch_from_dense(&dense, &options, &batch, &error));
  EXPECT_OK(segue_attention_batch_describe(batch, &view, &error));
  EXPECT(view.sequences == kBatch && view.segments == 1 && view.tensor_count == 1);
  EXPECT(view.query_rows == kBatch * kImage && view.rows[1].kv_begin == kImage);
  EXPECT(view.tensors[0].v.data == in_view(s, 2).rows.data);
  EXPECT(view.struct_size == sizeof view);
  segue_segment_rows wide[kBatch * 3];
  memset(wide, 0xff, sizeof wide);
  EXPECT_OK(segue_attention_batch_rows(batch, 3, wide, kBatch * 3, &error));
  EXPECT(wide[3].q_begin == kImage && wide[2].q_rows == 0 && wide[5].source == 0);
  EXPECT_ERROR(segue_attention_batch_rows(batch, 3, wide, 5, &error),
               "segue_attention_batch_rows: capacity: got 5, wanted at least 6");
  EXPECT_ERROR(segue_attention_batch_rows(batch, 0, wide, 6, &error),
               "segue_attention_batch_rows: max_segments: got 0, wanted at least 1");
  segue_attention_batch_destroy(batch);

  const int32_t bounds[4] = {0, 10, 10, kImage};
  segue_attention_packed packed = {.struct_size = sizeof packed,
                                   .sequences = 3,
                                   .q = in_view(s, 0).rows,
                                   .k = in_view(s, 1).rows,
                                   .v = in_view(s, 2).rows,
                                   .o = out_view(s).rows,
                                   .total_q = kImage,
                                   .total_k = kImage,
                                   .cu_seqlens_q = bounds,
                                   .cu_seqlens_k = bounds};
  EXPECT_OK(segue_attention_batch_from_packed(&packed, &options, &batch, &error));
  EXPECT_OK(segue_attention_batch_describe(batch, &view, &error));
  EXPECT(view.sequences == 3 && view.rows[2].q_begin == 10 && view.rows[2].q_rows == kImage - 10);
  segue_attention_batch_destroy(batch);
  packed.total_k = kImage + 1;
  EXPECT_ERROR(segue_attention_batch_from_packed(&packed, &options, &batch, &error),
               "attention from packed tensors: cu_seqlens_k[3]: got 40, wanted total_k, 41");
  EXPECT(batch == NULL);
  packed.cu_seqlens_k = NULL;
  EXPECT_ERROR(segue_attention_batch_from_packed(&packed, &options, &batch, &error),
               "segue_attention_batch_from_packed: form.cu_seqlens_k: got NULL, wanted a pointer");

  const segue_attention_trailing_padding padded = {
      sizeof padded,   30, kImage, in_view(s, 0).rows, in_view(s, 1).rows, in_view(s, 2).rows,
      out_view(s).rows};
  EXPECT_OK(segue_attention_batch_from_trailing_padding(&padded, &options, &batch, &error));
  EXPECT_OK(segue_attention_batch_describe(batch, &view, &error));
  EXPECT(view.sequences == 2 && view.rows[1].q_rows == kImage - 30 && view.rows[1].kv_rows == 0);
  segue_attention_batch_destroy(batch);

  const int64_t indices[5] = {4, 5, 6, 2, 9};
  const int32_t index_bounds[3] = {0, 4, 5};
  const segue_attention_row_indices rows = {.struct_size = sizeof rows,
                                            .sequences = 2,
                                            .q = padded.q,
                                            .k = padded.k,
                                            .v = padded.v,
                                            .o = padded.o,
                                            .total = kImage,
                                            .indices = indices,
                                            .cu_seqlens = index_bounds};
  EXPECT_OK(segue_attention_batch_from_row_indices(&rows, &options, &batch, &error));
  EXPECT_OK(segue_attention_batch_describe(batch, &view, &error));
  EXPECT(view.segments == 2 && view.rows[0].q_rows == 3 && view.rows[2].kv_begin == 9);
  segue_attention_batch_destroy(batch);

  const stream text = make_stream(kText, 6);
  segue_attention_prefix_main joint = make_joint(text, s);
  uint8_t mask[kBatch * (kText + kImage)] = {0, 1, 0, 1, 1};
  joint.mask = mask;
  EXPECT_OK(segue_attention_batch_from_prefix_main(&joint, &options, &batch, &error));
  EXPECT_OK(segue_attention_batch_describe(batch, &view, &error));
  EXPECT(view.segments == 2 && view.rows[1].q_begin == 3 && view.rows[1].q_rows == 2);
  segue_attention_batch_destroy(batch);
  joint.main_lengths = bounds;
  EXPECT_ERROR(segue_attention_batch_from_prefix_main(&joint, &options, &batch, &error),
               "segue_attention_batch_from_prefix_main: form.mask: got lengths beside it, wanted "
               "NULL for either");
  free_stream(text);
  free_stream(s);
}

/* Structs of other sizes than this header's, and arguments that are missing. */
static void test_versions_and_errors(void) {
  segue_error error = {.struct_size = sizeof error};
  segue_attention_options options = make_options();
  const segue_tensor_rows rows = {8, 8};
  segue_attention_plan_settings settings = {.struct_size = sizeof settings,
                                            .place = SEGUE_CPU,
                                            .options = &options,
                                            .max_sequences = 1,
                                            .max_segments = 1,
                                            .tensors = &rows,
                                            .tensor_count = 1};
  segue_attention_plan* plan = NULL;
  options.struct_size = 3;
  EXPECT_ERROR(segue_attention_plan_create(&settings, &plan, &error),
               "segue_attention_plan_create: options.struct_size: got 3, wanted at least 28");
  struct {
    segue_attention_options options;
    int32_t later;
  } newer = {make_options(), 0};
  newer.options.struct_size = sizeof newer;
  settings.options = &newer.options;
  EXPECT_OK(segue_attention_plan_create(&settings, &plan, &error));
  segue_attention_plan_destroy(plan);
  newer.later = 1;
  EXPECT(segue_attention_plan_create(&settings, &plan, &error) == SEGUE_UNSUPPORTED);
  EXPECT(plan == NULL);
  EXPECT(strcmp(segue_result_name(error.result), "unsupported") == 0);
  options = make_options();
  settings.options = &options;

  settings.place = 2;
  EXPECT_ERROR(segue_attention_plan_create(&settings, &plan, &error),
               "segue_attention_plan_create: settings.place: got 2, wanted 0 (CPU) or 1 (CUDA)");
  settings.place = SEGUE_CPU;
  options.element_type = 3;
  EXPECT_ERROR(segue_attention_plan_create(&settings, &plan, &error),
               "segue_attention_plan_create: options.element_type: got 3, wanted 0 (float32), 1 "
               "(bfloat16) or 2 (float16)");
  options.element_type = SEGUE_FLOAT32;
  settings.tensors = NULL;
  EXPECT_ERROR(segue_attention_plan_create(&settings, &plan, &error),
               "segue_attention_plan_create: settings.tensors: got NULL, wanted a pointer");
  EXPECT_ERROR(segue_attention_plan_create(NULL, &plan, &error),
               "segue_attention_plan_create: settings: got NULL, wanted a pointer");
  EXPECT_ERROR(segue_attention_plan_create(&settings, NULL, &error),
               "segue_attention_plan_create: plan: got NULL, wanted a pointer");
  EXPECT_ERROR(segue_attention_plan_prepare(NULL, NULL, NULL, &error),
               "segue_attention_plan_prepare: plan: got NULL, wanted a pointer");
  EXPECT_ERROR(segue_attention_plan_run(NULL, NULL, &error),
               "segue_attention_plan_run: plan: got NULL, wanted a pointer");
  /* No place for the message, or a small one. */
  EXPECT(segue_attention_plan_run(NULL, NULL, NULL) == SEGUE_INVALID_ARGUMENT);
  memset(&error, 'x', sizeof error);
  error.struct_size = 8 + 13;
  EXPECT(segue_attention_plan_run(NULL, NULL, &error) == SEGUE_INVALID_ARGUMENT);
  EXPECT(strcmp(error.message, "segue_attent") == 0 && error.message[13] == 'x');

  EXPECT(segue_attention_plan_backend(NULL) == NULL);
  EXPECT(segue_attention_plan_workspace_bytes(NULL) == -1);
  EXPECT(segue_attention_plan_max_query_rows(NULL) == -1);
  EXPECT(segue_attention_plan_describe(NULL, NULL, 0) == 0);
  segue_attention_plan_destroy(NULL);
  segue_attention_batch_destroy(NULL);
  EXPECT(segue_abi_version() == SEGUE_ABI_VERSION);
  EXPECT(strchr(segue_version(), '.') != NULL);
  EXPECT(strcmp(segue_result_name(99), "unknown") == 0);
}

int main(void) {
  test_joint_attention();
  test_segments_by_hand();
  test_forms();
  test_versions_and_errors();
  if (failures > 0) fprintf(stderr, "%d failures\n", failures);
  return failures > 0 ? 1 : 0;
}
