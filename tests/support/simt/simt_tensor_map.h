/* The map by which emulated kernels copy boxes of a tensor of two dimensions (cp.async.bulk.tensor),
 * in the first of the 128 bytes that a driver's map has. Plain C: part of the emulated program, and
 * of the driver that makes it. */
#ifndef TESTS_SUPPORT_SIMT_SIMT_TENSOR_MAP_H_
#define TESTS_SUPPORT_SIMT_SIMT_TENSOR_MAP_H_

typedef struct SimtTensorMap {
  const char* base;
  unsigned long columns, rows, row_bytes; /* elements of a row that are there, rows, their stride */
  unsigned box_columns, box_rows, bytes;  /* of an element */
} SimtTensorMap;

#endif /* TESTS_SUPPORT_SIMT_SIMT_TENSOR_MAP_H_ */
