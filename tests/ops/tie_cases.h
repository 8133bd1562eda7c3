/* tie_cases.h - nodes whose ties test_ties.c compares with their kernels. */
#ifndef TIE_CASES_H
#define TIE_CASES_H

/* Sizes are letters, random and the same throughout a case; {A*B}, {A+B} and
 * {2*A} are computed.  <a|b> is one of them by chance, but each one of the
 * first such list comes, and other lists with the same number of words follow
 * it. Then the axes that must be free: input.axis, or oN.axis of output N. */
typedef struct tie_case {
    const char *inputs, *outputs, *lines, *free;
} tie_case;

static const tie_case cases[] = {
    /* convolutions */
    {"x: f32[2,A,5,6]", "y: f32[*]",
     "w: f32[B,A,3,3] = random(1)\nb: f32[B] = random(2)\n"
     "y = Conv(x, w, b) {pads=<[1,1,0,1]|[0,0,0,0]|[2,0,1,2]>, "
     "strides=<[2,1]|[1,1]|[3,2]>, dilations=<[1,1]|[1,2]>}\n",
     "0.1 1.0 1.1 2.0 o0.1"},
    {"x: f32[1,{A*B},4,4]", "y: f32[*]",
     "w: f32[{A*C},B,1,2] = random(1)\nb: f32[{A*C}] = random(2)\n"
     "y = Conv(x, w, b) {group=A, pads=<[0,1,0,1]|[1,0,1,0]>, "
     "strides=<[1,1]|[2,1]>}\n",
     "0.1 1.0 1.1 2.0 o0.1"},
    {"x: f32[1,A,4,4]", "y: f32[*]",
     "w: f32[A,1,3,3] = random(1)\n"
     "y = Conv(x, w) {group=A, dilations=<[1,1]|[2,1]>, pads=[1,0,1,1]}\n",
     "0.1 o0.1"},
    {"x: f32[1,A,4]", "y: f32[*]",
     "w: f32[{A*B},1,3] = random(1)\ny = Conv(x, w) {group=A}\n",
     "0.1 1.0 o0.1"},
    {"x: f32[1,A,3,4]", "y: f32[*]",
     "w: f32[A,B,2,2] = random(1)\nb: f32[B] = random(2)\n"
     "y = ConvTranspose(x, w, b) {strides=<[2,2]|[1,1]>, "
     "pads=<[0,0,0,0]|[1,0,0,1]>}\n",
     "0.1 1.0 1.1 2.0 o0.1"},
    {"x: f32[1,{A*B},3,4]", "y: f32[*]",
     "w: f32[{A*B},C,2,2] = random(1)\n"
     "y = ConvTranspose(x, w) {group=A, strides=<[2,1]|[1,3]>, "
     "output_padding=<[1,0]|[0,0]>}\n",
     "0.1 1.0 1.1 o0.1"},
    {"x: f32[1,A,4,4], o: f32[1,8,3,3]", "y: f32[*]",
     "w: f32[B,A,2,2] = random(1)\n"
     "y = DeformConv(x, w, o) {dilations=<[1,1]|[2,2]>, "
     "pads=<[0,0,0,0]|[1,1,0,0]>}\n",
     "0.1 o0.1"},
    /* products */
    {"x: f32[2,A]", "y: f32[*]", "w: f32[A,B] = random(1)\ny = MatMul(x, w)\n",
     "0.1 1.0 1.1 o0.1"},
    {"x: f32[2,C,3,A]", "y: f32[*]",
     "w: f32[A,B] = random(1)\ny = MatMul(x, w)\n", "0.1 0.3 o0.1 o0.3"},
    {"x: f32[A,B]", "y: f32[*]", "w: f32[C,A] = random(1)\ny = MatMul(w, x)\n",
     "0.0 1.0 o0.0 o0.1"},
    {"p: f32[2,A,3,4], v: f32[2,A,4,B]", "y: f32[*]", "y = MatMul(p, v)\n",
     "0.1 0.3 1.1 1.2 1.3 o0.1 o0.3"},
    {"p: f32[2,1,3,4], v: f32[2,A,4,B]", "y: f32[*]", "y = MatMul(p, v)\n",
     "1.1 o0.1"},
    {"x: f32[2,A]", "y: f32[*]",
     "w: f32[B,A] = random(1)\nc: f32[B] = random(2)\n"
     "y = Gemm(x, w, c) {transB=1, alpha=<0.5|1.0>, beta=<2.0|1.0>}\n",
     "0.1 1.0 1.1 2.0 o0.1"},
    {"x: f32[A,2]", "y: f32[*]",
     "w: f32[A,B] = random(1)\nc: f32[1,B] = random(2)\n"
     "y = Gemm(x, w, c) {transA=1}\n",
     "0.0 1.1 o0.1"},
    {"x: f32[2,3,A]", "y: f32[*]",
     "w: f32[B,A] = random(1)\n"
     "y = Einsum(x, w) {equation=\"abc,dc->abd\"}\n",
     "0.2 1.0 o0.2"},
    {"x: f32[2,A,3], z: f32[2,A,4]", "y: f32[*]",
     "y = Einsum(x, z) {equation=\"bhi,bhj->bhij\"}\n", "0.1 o0.1 o0.3"},
    {"x: f32[2,3,A], z: f32[2,4,A]", "y: f32[*]",
     "y = Einsum(x, z) {equation=\"bik,bjk->bij\"}\n", "0.1 0.2 1.2 o0.2"},
    {"x: f32[3,A], z: f32[B,A]", "y: f32[*]", "y = Gemm(x, z) {transB=1}\n",
     "0.1 1.0 1.1 o0.1"},
    {"x: f32[4,1,A]", "y: f32[*]",
     "w: f32[1,<12|3|9>,A] = random(1)\nr: f32[1,<12|3|9>,3] = random(2)\n"
     "y = <LSTM|RNN|GRU>(x, w, r) {hidden_size=3}\n",
     "0.2"},
    /* normalizations */
    {"x: f32[2,A,3,3]", "y: f32[*]",
     "s: f32[A] = random(1)\nb: f32[A] = random(2)\nm: f32[A] = random(3)\n"
     "v: f32[A] = 1.5\ny = BatchNormalization(x, s, b, m, v)\n",
     "0.1 1.0 o0.1"},
    {"x: f32[2,A,3,3]", "y: f32[*]",
     "s: f32[A] = random(1)\nb: f32[A] = random(2)\n"
     "y = InstanceNormalization(x, s, b)\n",
     "0.1 0.2 2.0 o0.1"},
    {"x: f32[2,{A*B},3]", "y: f32[*]",
     "s: f32[{A*B}] = random(1)\nb: f32[{A*B}] = random(2)\n"
     "y = GroupNormalization(x, s, b) {num_groups=A}\n",
     "0.1 1.0 o0.1"},
    {"x: f32[2,B,A]", "y: f32[*]",
     "s: f32[A] = random(1)\nb: f32[A] = random(2)\n"
     "y = LayerNormalization(x, s, b) {axis=<-1|2>}\n",
     "0.1 0.2 1.0 o0.2"},
    {"x: f32[2,B,A]", "y: f32[*]",
     "s: f32[A] = random(1)\n"
     "y = <RMSNormalization|SimplifiedLayerNormalization>(x, s)\n",
     "0.1 0.2 o0.2"},
    {"x: f32[1,A,3,3]", "y: f32[*]", "y = LRN(x) {size=<3|5>}\n", "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]", "y = LpNormalization(x) {axis=2, p=<1|2>}\n",
     "0.1 o0.1"},
    {"x: f32[2,A,3,3]", "y: f32[*]", "y = MeanVarianceNormalization(x)\n",
     "0.1 o0.1"},
    {"x: f32[2,A,5]", "y: f32[*]",
     "y = <Softmax|LogSoftmax|Hardmax>(x) {axis=<-1|2>}\n", "0.1 o0.1"},
    /* element by element */
    {"x: f32[2,A,3,3], z: f32[2,A,1,1]", "y: f32[*]", "y = Mul(x, z)\n",
     "0.1 1.1 o0.1"},
    {"x: f32[2,A,3,3]", "y: f32[*]",
     "c: f32[A,1,1] = random(1)\ny = PRelu(x, c)\n", "0.1 1.0 o0.1"},
    {"x: f32[A,B], z: f32[B]", "y: f32[*]", "y = Add(x, z)\n",
     "0.0 0.1 1.0 o0.1"},
    {"x: f32[2,A]", "y: f32[*]", "y = Relu(x)\n", "0.1 o0.1"},
    {"x: f32[2,A], z: f32[1,A]", "y: f32[*]",
     "c: bool[2,1] = [1,0]\ny = Where(c, x, z)\n", "1.1 2.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]", "y = <Dropout|Identity>(x)\n", "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]",
     "y = <Abs|Acos|Acosh|Asin|Asinh|Atan|Atanh|Ceil|Celu|Clip|Cos|Cosh|Elu|"
     "Erf|Exp|Floor|Gelu|HardSigmoid|HardSwish|LeakyRelu|Log|Mish|Neg|"
     "Reciprocal|Round|Selu|Shrink|Sigmoid|Sign|Sin|Sinh|Softplus|Softsign|"
     "Sqrt|Swish|Tan|Tanh|ThresholdedRelu>(x)\n",
     "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]", "y = com.microsoft::<Gelu|QuickGelu>(x)\n",
     "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: bool[*]", "y = <IsInf|IsNaN>(x)\n", "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: i64[*]", "y = Cast(x) {to=7}\n", "0.1 o0.1"},
    {"x: f32[2,A,3], z: f32[A,1]", "y: f32[*]",
     "y = <Sub|Div|Max|Mean|Min|Pow|Sum>(x, z)\n", "0.1 1.0 o0.1"},
    {"x: f32[2,A,3], z: f32[A,1]", "y: bool[*]",
     "y = <Equal|Greater|GreaterOrEqual|Less|LessOrEqual>(x, z)\n",
     "0.1 1.0 o0.1"},
    {"x: bool[2,A,3], z: bool[A,1]", "y: bool[*]", "y = <And|Or|Xor>(x, z)\n",
     "0.1 1.0 o0.1"},
    {"x: bool[2,A,3]", "y: bool[*]", "y = Not(x)\n", "0.1 o0.1"},
    {"x: u8[2,A,3], z: u8[A,1]", "y: u8[*]",
     "y = <BitwiseAnd|BitwiseOr|BitwiseXor>(x, z)\n", "0.1 1.0 o0.1"},
    {"x: u8[2,A,3], z: u8[A,1]", "y: u8[*]",
     "y = BitShift(x, z) {direction=\"LEFT\"}\n", "0.1 1.0 o0.1"},
    {"x: u8[2,A,3]", "y: u8[*]", "y = BitwiseNot(x)\n", "0.1 o0.1"},
    {"x: i64[2,A,3]", "y: i64[*]", "c: i64[1] = [3]\ny = Mod(x, c)\n",
     "0.1 o0.1"},
    /* along an axis */
    {"x: f32[2,A,4,5]", "y: f32[*]",
     "a: i64[2] = [2,3]\n"
     "y = "
     "<ReduceMean|ReduceMax|ReduceMin|ReduceL1|ReduceL2|ReduceLogSum|"
     "ReduceLogSumExp|"
     "ReduceProd|ReduceSum|ReduceSumSquare>(x, a) {keepdims=<0|1>}\n",
     "0.1 o0.1"},
    {"x: f32[2,A,4]", "y: f32[*]", "a: i64[1] = [1]\ny = ReduceSum(x, a)\n",
     "0.1 0.2"},
    {"x: f32[2,A,4]", "y: i64[*]",
     "y = <ArgMax|ArgMin>(x) {axis=2, keepdims=<0|1>}\n", "0.1 o0.1"},
    {"x: f32[2,A,4]", "y: f32[*], i: i64[*]",
     "k: i64[1] = [2]\ny, i = TopK(x, k) {largest=<1|0>}\n", "0.1 o0.1 o1.1"},
    {"x: f32[2,A,4]", "y: f32[*]",
     "a: i64 = 2\ny = <CumSum|CumProd>(x, a) {reverse=<0|1>, "
     "exclusive=<0|1>}\n",
     "0.1 o0.1"},
    {"x: f32[A,3,4]", "y: f32[*]", "y = Trilu(x) {upper=<1|0>}\n", "0.0 o0.0"},
    /* moving */
    {"x: f32[2,A,3], z: f32[2,B,3]", "y: f32[*]",
     "y = Concat(<x, z, x|z, x>) {axis=<1|-2>}\n", "0.1 1.1 o0.1"},
    {"x: f32[2,{A+B}]", "y: f32[*], z: f32[*]",
     "s: i64[2] = [A,B]\ny, z = Split(x, s) {axis=<1|-1>}\n", "0.1 o0.1 o1.1"},
    {"x: f32[{2*A},2]", "y: f32[*], z: f32[*]",
     "y, z = Split(x) {num_outputs=2}\n", "0.0 o0.0 o1.0"},
    {"x: f32[2,{A+B}]", "y: f32[*]",
     "s: i64[1] = [<1|0|-3>]\ne: i64[1] = [<-1|3|99>]\n"
     "a: i64[1] = [<-1|1>]\n"
     "y = Slice(x, s, e, a)\n",
     "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]",
     "p: i64[6] = [0,<2|0|1>,1,0,<1|2|0>,0]\ny = Pad(x, p)\n", "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]",
     "p: i64[6] = [0,-1,0,0,1,0]\ny = Pad(x, p)\n", "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]",
     "p: i64[6] = [0,0,1,0,0,1]\ny = Pad(x, p) {mode=\"reflect\"}\n",
     "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]",
     "i: i64[3] = [<1,-1,0|0,0,1|-2,1,-1>]\ny = Gather(x, i) {axis=<1|-2>}\n",
     "0.1 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]", "i: i64 = 1\ny = Gather(x, i) {axis=2}\n",
     "0.1 o0.1"},
    {"i: i64[2,3]", "y: f32[*]", "t: f32[9,A] = random(1)\ny = Gather(t, i)\n",
     "0.1 o0.2"},
    {"x: f32[2,A,B]", "y: f32[*]",
     "y = Transpose(x) {perm=<[2,0,1]|[2,1,0]|[1,2,0]|[1,0,2]|[0,2,1]>}\n",
     "0.1 0.2"},
    {"x: f32[2,A]", "y: f32[*]",
     "r: i64[2] = [<1,3|2,1|2,2>]\ny = Tile(x, r)\n", "0.1 o0.1"},
    {"x: f32[1,A,{4*B},3]", "y: f32[*]", "y = Transpose(x) {perm=[0,2,3,1]}\n",
     "0.1 0.2"},
    {"x: f32[1,{4*A},2,3]", "y: f32[*]",
     "y = DepthToSpace(x) {blocksize=2, mode=<\"DCR\"|\"CRD\">}\n", "0.1 o0.1"},
    {"x: f32[1,A,4,6]", "y: f32[*]", "y = SpaceToDepth(x) {blocksize=2}\n",
     "0.1 o0.1"},
    {"x: f32[3,2,A]", "y: f32[*]",
     "l: i64[2] = [2,3]\ny = ReverseSequence(x, l)\n", "0.2 o0.2"},
    /* shapes */
    {"x: f32[2,{A*B},3]", "y: f32[*]",
     "s: i64[4] = [2,A,B,3]\ny = Reshape(x, s)\n", "0.1 o0.1 o0.2"},
    {"x: f32[2,A,B,C]", "y: f32[*]", "s: i64[2] = [0,-1]\ny = Reshape(x, s)\n",
     "0.1 0.2 0.3 o0.1"},
    {"x: f32[A,{B*C}]", "y: f32[*]",
     "s: i64[2] = [{A*B},C]\ny = Reshape(x, s)\n", "0.0 0.1 o0.0 o0.1"},
    {"x: f32[2,A,3,3]", "y: f32[*]", "y = Flatten(x) {axis=<1|-3>}\n",
     "0.1 o0.1"},
    {"x: f32[2,A,1,3,1]", "y: f32[*]",
     "a: i64[2] = [<2,-1|4,-3>]\ny = Squeeze(x, a)\n", "0.1 0.3 o0.2"},
    {"x: f32[A,B]", "y: f32[*]",
     "a: i64[2] = [<0,2|-4,2|0,-2>]\ny = Unsqueeze(x, a)\n",
     "0.0 0.1 o0.1 o0.3"},
    {"x: f32[A,1]", "y: f32[*]", "s: i64[3] = [2,1,B]\ny = Expand(x, s)\n",
     "0.0 o0.1 o0.2"},
    /* images */
    {"x: f32[1,A,4,4]", "y: f32[*]",
     "y = <MaxPool|LpPool>(x) {kernel_shape=[2,2], "
     "strides=<[1,1]|[2,1]>}\n",
     "0.1 o0.1"},
    {"x: f32[1,A,4,4]", "y: f32[*]",
     "y = AveragePool(x) {kernel_shape=[3,3], pads=<[1,1,1,1]|[0,1,0,1]>, "
     "count_include_pad=<0|1>}\n",
     "0.1 o0.1"},
    {"x: f32[1,A,4,4]", "y: f32[*]",
     "y = <GlobalAveragePool|GlobalMaxPool|GlobalLpPool>(x)\n", "0.1 o0.1"},
    {"x: f32[1,A,2,3]", "y: f32[*]",
     "s: f32[4] = [1,1,2,2]\n"
     "y = Resize(x, _, s) {mode=<\"linear\"|\"nearest\"|\"cubic\">}\n",
     "0.1 o0.1"},
    {"x: f32[1,A,2,3]", "y: f32[*]",
     "s: i64[4] = [1,A,5,4]\ny = Resize(x, _, _, s)\n", "0.1 o0.1"},
    {"x: f32[1,A,4,4], g: f32[1,2,3,2]", "y: f32[*]",
     "y = GridSample(x, g) {mode=<\"linear\"|\"nearest\">, "
     "padding_mode=<\"zeros\"|\"border\"|\"reflection\">}\n",
     "0.1 o0.1"},
    {"x: f32[1,A,6,6], r: f32[2,4]", "y: f32[*]",
     "b: i64[2] = [0,0]\n"
     "y = RoiAlign(x, r, b) {output_height=2, output_width=2}\n",
     "0.1 o0.1"},
    {"x: f32[1,A,6,6]", "y: f32[*]",
     "r: f32[2,5] = [0,1,1,4,5,0,0,2,3,3]\n"
     "y = MaxRoiPool(x, r) {pooled_shape=<[2,2]|[1,3]>}\n",
     "0.1 o0.1"},
    /* quantized */
    {"x: f32[2,A,3]", "y: f32[*]",
     "s: f32[A] = 0.125\nz: i8[A] = 0\n"
     "y = QuantizeLinear(x, s, z) {axis=<1|-2>}\n",
     "0.1 1.0 2.0 o0.1"},
    {"x: f32[2,A,3]", "y: f32[*]",
     "s: f32[] = 0.125\nz: u8[] = 3\n"
     "y = <|com.microsoft::>QuantizeLinear(x, s, z)\n",
     "0.1 o0.1"},
    {"x: i8[2,A,3]", "y: f32[*]",
     "s: f32[A] = random(1)\ny = DequantizeLinear(x, s) {axis=<1|-2>}\n",
     "0.1 1.0 o0.1"},
    {"x: i8[A]", "y: f32[*]",
     "s: f32[<1|>] = 0.5\ny = DequantizeLinear(x, s)\n", "0.0 o0.0"},
    {"x: u8[2,A,3]", "y: f32[*]",
     "s: f32[] = 0.5\nz: u8[] = 7\n"
     "y = <|com.microsoft::>DequantizeLinear(x, s, z)\n",
     "0.1 o0.1"},
    /* what ONNX Runtime's optimizer writes */
    {"x: f32[2,A,5,6]", "y: f32[*]",
     "w: f32[B,A,3,3] = random(1)\nb: f32[B] = random(2)\n"
     "y = com.microsoft::FusedConv(x, w, b) {activation=\"Relu\"}\n",
     "0.1 1.0 1.1 2.0 o0.1"},
    {"x: f32[2,3,A]", "y: f32[*]",
     "w: f32[B,A] = random(1)\n"
     "y = com.microsoft::FusedMatMul(x, w) {transB=1, alpha=<0.5|2.0>}\n",
     "0.2 1.0 1.1 o0.2"},
    {"x: f32[2,A]", "y: f32[*]",
     "w: f32[A,B] = random(1)\nc: f32[B] = random(2)\n"
     "y = com.microsoft::FusedGemm(x, w, c) {activation=\"Relu\"}\n",
     "0.1 1.0 1.1 2.0 o0.1"},
    /* attention */
    {"q: f32[1,3,{A*4}], k: f32[1,5,{A*4}], v: f32[1,5,{A*6}]", "y: f32[*]",
     "y = Attention(q, k, v) {q_num_heads=A, kv_num_heads=A, "
     "is_causal=<0|1>, scale=<0.5|1.0>}\n",
     "0.2 1.2 2.2 o0.2"},
    {"q: f32[1,3,{A*B*4}], k: f32[1,5,{A*4}], v: f32[1,5,{A*2}]", "y: f32[*]",
     "y = Attention(q, k, v) {q_num_heads={A*B}, kv_num_heads=A}\n",
     "0.2 1.2 2.2 o0.2"},
    {"q: f32[1,{A*B},3,4], k: f32[1,A,5,4], v: f32[1,A,5,2], "
     "m: f32[1,{A*B},3,5]",
     "y: f32[*]", "y = Attention(q, k, v, m)\n", "0.1 1.1 3.1 o0.1"},
    {"x: f32[1,3,{A*4}]", "y: f32[*]",
     "c: f32[1,3,2] = random(1)\ns: f32[1,3,2] = random(2)\n"
     "y = RotaryEmbedding(x, c, s) {num_heads=A, interleaved=<0|1>}\n",
     "0.2 o0.2"},
    {"x: f32[1,4,A]", "y: f32[*]",
     "w: f32[A,{B*6}] = random(1)\nb: f32[{B*6}] = random(2)\n"
     "y = com.microsoft::Attention(x, w, b) {num_heads=B}\n",
     "0.2 1.1 2.0 o0.2"},
    {"q: f32[1,3,{A*4}], k: f32[1,5,{A*4}], v: f32[1,5,{A*4}]", "y: f32[*]",
     "y = com.microsoft::MultiHeadAttention(q, k, v) {num_heads=A}\n",
     "0.2 1.2 2.2 o0.2"},
    {"x: f32[1,3,A], z: f32[1,3,A]", "y: f32[*]",
     "g: f32[A] = random(1)\n"
     "y = com.microsoft::<SkipLayerNormalization|"
     "SkipSimplifiedLayerNormalization>(x, z, g)\n",
     "0.2 1.2 2.0 o0.2"},
};

#endif
