// The operations of alu on the lanes of an accumulator. With an immediate, the result is there in the
// same cycle (`now`). With both operands from acc, a cycle later (`later`): the product of requantise
// has a register before it is shifted.
module vta_alu (
    input logic clk,
    input logic valid,        // dst and src are there
    input logic later_valid,  // the cycle after one with both operands from acc
    input logic [2:0] operation,
    input logic use_imm,
    input logic signed [vta_isa::IMM_BITS-1:0] imm,
    input logic [8*vta_isa::ACC_BYTES-1:0] dst,
    input logic [8*vta_isa::ACC_BYTES-1:0] src,
    output logic [8*vta_isa::ACC_BYTES-1:0] now,
    output logic [8*vta_isa::ACC_BYTES-1:0] later
);
  typedef logic signed [31:0] lane_t;

  function automatic logic signed [31:0] shifted(input logic signed [31:0] a,
                                                 input logic signed [31:0] b);
    logic [4:0] left;
    left = 5'd0 - b[4:0];
    if (b >= 0) shifted = a >>> (b > 31 ? 5'd31 : b[4:0]);
    else shifted = b > -32 ? a << left : '0;
  endfunction

  // Of a product of 64 bits: halves are rounded up, which adds the last bit that is shifted out.
  function automatic logic signed [31:0] requantised(input logic signed [63:0] product,
                                                     input logic [5:0] shift);
    logic signed [63:0] scaled;
    scaled = product >>> shift;
    if (shift != 0) scaled = scaled + 64'(product[shift-6'd1]);
    requantised = scaled > 127 ? 32'sd127 : scaled < -128 ? -32'sd128 : scaled[31:0];
  endfunction

  logic multiplies;
  assign multiplies = operation == vta_isa::OPERATION_MUL ||
                      operation == vta_isa::OPERATION_REQUANTISE;
  for (genvar l = 0; l < vta_isa::BLOCK; l++) begin : g_lane
    lane_t a, b, simple;
    logic signed [63:0] result, held;
    assign a = dst[32*l+:32];
    assign b = use_imm ? 32'(imm) : src[32*l+:32];
    always_comb begin
      simple = '0;
      result = '0;
      if (valid) begin
        case (operation)
          vta_isa::OPERATION_MIN: simple = a < b ? a : b;
          vta_isa::OPERATION_MAX: simple = a > b ? a : b;
          vta_isa::OPERATION_ADD: simple = a + b;
          vta_isa::OPERATION_SHR: simple = shifted(a, b);
          default: simple = '0;
        endcase
        result = multiplies ? 64'(a) * 64'(b) : 64'(simple);
      end
    end
    always_ff @(posedge clk) if (valid && !use_imm) held <= result;
    assign now[32*l+:32] = result[31:0];
    always_comb begin
      later[32*l+:32] = held[31:0];
      if (later_valid && operation == vta_isa::OPERATION_REQUANTISE)
        later[32*l+:32] = requantised(held, imm[5:0]);
    end
  end
endmodule
