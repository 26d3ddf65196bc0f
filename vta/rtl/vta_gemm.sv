// The product of an element of inp and one of wgt: for each output, the sum over the inputs. It is
// there in the cycle after `valid`.
module vta_gemm (
    input logic clk,
    input logic valid,
    input logic [8*vta_isa::INP_BYTES-1:0] inp,
    input logic [8*vta_isa::WGT_BYTES-1:0] wgt,
    output logic [8*vta_isa::ACC_BYTES-1:0] sums
);
  localparam int unsigned BLOCK = vta_isa::BLOCK;
  localparam int unsigned SUM_BITS = 16 + $clog2(BLOCK);  // the others are copies of the sign

  // Synthesis finds the 8 bits that matter in signed words only. A simulator is twice as fast with
  // unsigned ones, whose product has the same low 32 bits.
  function automatic logic [31:0] dot(input logic [8*BLOCK-1:0] a, input logic [8*BLOCK-1:0] b);
    logic signed [31:0] x, y;
    dot = '0;
    for (int unsigned i = 0; i < BLOCK; i++) begin
      x = 32'($signed(a[8*i+:8]));
      y = 32'($signed(b[8*i+:8]));
`ifdef SYNTHESIS
      x = x * y;  // apart, since an unsigned sum would make it unsigned
      dot += $unsigned(x);
`else
      dot += $unsigned(x) * $unsigned(y);
`endif
    end
  endfunction

  for (genvar o = 0; o < BLOCK; o++) begin : g_output
    always_ff @(posedge clk) begin
      if (valid) sums[32*o+:32] <= 32'($signed(SUM_BITS'(dot(inp, wgt[8*BLOCK*o+:8*BLOCK]))));
    end
  end
endmodule
