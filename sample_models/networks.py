"""The networks that `make.py` exports: what people train, at the smallest widths that show it."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention, [batch, time, width] to the same."""

    def __init__(
        self, width: int, heads: int = 2, *, causal: bool = False, bias: bool = True
    ) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.dense = nn.Linear(width, width, bias=bias)
        self.heads = heads
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend."""
        batch, time, width = x.shape

        def split(t: torch.Tensor) -> torch.Tensor:
            return t.reshape(batch, time, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(2, 3) * (width // self.heads) ** -0.5
        if self.causal:
            scores = scores + torch.full((time, time), -1e4).triu(1)
        mixed = scores.softmax(-1) @ value
        return self.dense(mixed.transpose(1, 2).reshape(batch, time, width))


def mlp(width: int) -> nn.Sequential:
    """Return the feed-forward branch of a transformer."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class BertLayer(nn.Module):
    """Post-LN: normalised after each addition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.mlp = mlp(width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        x = self.attention_norm(x + self.attention(x))
        return self.output_norm(x + self.mlp(x))


class Bert(nn.Module):
    """Encoder of BERT."""

    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(32, width)
        self.position_embeddings = nn.Parameter(torch.zeros(1, 8, width))
        self.embeddings_norm = nn.LayerNorm(width, eps=1e-12)
        self.layer = nn.ModuleList(BertLayer(width) for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the last hidden state."""
        x = self.embeddings_norm(self.word_embeddings(tokens) + self.position_embeddings)
        for layer in self.layer:
            x = layer(x)
        return x


class Block(nn.Module):
    """Pre-LN: each branch normalises what it reads."""

    def __init__(self, width: int, *, causal: bool = False) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, causal=causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = mlp(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """Two Pre-LN blocks and a last norm, on [batch, time, 16] features."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits per step."""
        return self.head(self.norm(self.blocks(x)))


class Gpt2(nn.Module):
    """Decoder of GPT-2, its head tied to the embeddings."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.wte = nn.Embedding(32, width)
        self.wpe = nn.Parameter(torch.zeros(1, 8, width))
        self.h = nn.Sequential(Block(width, causal=True), Block(width, causal=True))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of the next token."""
        x = self.ln_f(self.h(self.wte(tokens) + self.wpe))
        return x @ self.wte.weight.T


class RMSNorm(nn.Module):
    """RMSNorm as LLaMA spells it."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise over the last axis."""
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


class LlamaLayer(nn.Module):
    """Pre-RMSNorm attention and gated feed-forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(width)
        self.self_attn = Attention(width, causal=True, bias=False)
        self.post_attention_layernorm = RMSNorm(width)
        self.gate_proj = nn.Linear(width, 2 * width, bias=False)
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        x = x + self.self_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(functional.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    """Decoder of LLaMA."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(32, width)
        self.layers = nn.Sequential(LlamaLayer(width), LlamaLayer(width))
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, 32, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of the next token."""
        return self.lm_head(self.norm(self.layers(self.embed_tokens(tokens))))


class VisionTransformer(nn.Module):
    """ViT: patches, a class token, Pre-LN blocks."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 4, 4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 17, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return class logits."""
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token, x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class SwinV2(nn.Module):
    """Block of Swin Transformer V2: each branch ends in a norm, right behind its linear layer."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.attn = Attention(width)
        self.norm1 = nn.LayerNorm(width)
        self.mlp = mlp(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        x = x + self.norm1(self.attn(x))
        return x + self.norm2(self.mlp(x))


class BatchNormTransformer(nn.Module):
    """Transformer of multivariate time series with BatchNorm in place of LayerNorm."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project = nn.Linear(6, width)
        self.attention = Attention(width)
        self.norm1 = nn.BatchNorm1d(width)
        self.mlp = mlp(width)
        self.norm2 = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one prediction per step."""
        x = self.project(x)
        x = self.norm1((x + self.attention(x)).transpose(1, 2)).transpose(1, 2)
        x = self.norm2((x + self.mlp(x)).transpose(1, 2)).transpose(1, 2)
        return self.head(x)


def conv_bn(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a 3x3 convolution and its BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
    )


class BasicBlock(nn.Module):
    """Residual block of ResNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = conv_bn(width, width)
        self.conv2 = conv_bn(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        return functional.relu(x + self.conv2(functional.relu(self.conv1(x))))


class ResNet(nn.Module):
    """ResNet of two blocks."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = conv_bn(3, width, 2)
        self.layer1 = BasicBlock(width)
        self.layer2 = BasicBlock(width)
        self.fc = nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return class logits."""
        x = self.layer2(self.layer1(functional.relu(self.stem(image))))
        return self.fc(x.mean((2, 3)))


class PreActBlock(nn.Module):
    """Residual block with BatchNorm and ReLU in front of each convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        x = x + self.conv1(functional.relu(self.bn1(x)))
        return x + self.conv2(functional.relu(self.bn2(x)))


class PreActResNet(nn.Module):
    """ResNet V2 of one block."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.layer1 = PreActBlock(width)
        self.bn = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return class logits."""
        x = functional.relu(self.bn(self.layer1(self.stem(image))))
        return self.fc(x.mean((2, 3)))


class UNet(nn.Module):
    """U-Net of one level, its way up a transposed convolution."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.encode = conv_bn(3, width)
        self.down = conv_bn(width, 2 * width, 2)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.up_norm = nn.BatchNorm2d(width)
        self.decode = conv_bn(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return a mask per class."""
        skip = functional.relu(self.encode(image))
        x = functional.relu(self.up_norm(self.up(functional.relu(self.down(skip)))))
        return self.head(functional.relu(self.decode(torch.cat([x, skip], 1))))


class StyleTransfer(nn.Module):
    """Convolutions with InstanceNorm."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.norm1 = nn.InstanceNorm2d(width, affine=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = nn.InstanceNorm2d(width, affine=True)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the styled image."""
        x = functional.relu(self.norm1(self.conv1(image)))
        return self.out(functional.relu(self.norm2(self.conv2(x))))


class Tabular(nn.Module):
    """Multilayer perceptron with BatchNorm."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.fc1 = nn.Linear(13, width)
        self.bn1 = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, width)
        self.bn2 = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one value per row."""
        x = functional.relu(self.bn1(self.fc1(x)))
        return self.out(functional.relu(self.bn2(self.fc2(x))))


class OwnLayerNorm(nn.Module):
    """A LayerNorm written by hand that forgot `keepdim=True`; on a square input nobody notices."""

    def __init__(self, width: int = 8, eps: float = 1e-5) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise, or so it was meant."""
        x = self.fc(x)
        difference = x - x.mean(-1)
        variance = difference.pow(2).mean(-1)
        return self.weight * (difference / torch.sqrt(variance + self.eps)) + self.bias
