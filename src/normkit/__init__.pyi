"""Every normalization method of deep learning in one place. Made by tools/stub.py from the catalogue."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch
import torch.nn as nn
from torch import Tensor
from torch.distributed.distributed_c10d import ProcessGroup

import normkit.activation.batch.adab2n as _adab2n
import normkit.activation.batch.alpha_batchnorm as _alpha_batchnorm
import normkit.activation.batch.attentive_batchnorm as _attentive_batchnorm
import normkit.activation.batch.batch_channel_norm as _batch_channel_norm
import normkit.activation.batch.batch_instance_norm as _batch_instance_norm
import normkit.activation.batch.batch_renorm as _batch_renorm
import normkit.activation.batch.batchnorm as _batchnorm
import normkit.activation.batch.batchnorm_linear_bounded as _batchnorm_linear_bounded
import normkit.activation.batch.decorrelated_batchnorm as _decorrelated_batchnorm
import normkit.activation.batch.evonorm_b0 as _evonorm_b0
import normkit.activation.batch.evonorm_b1 as _evonorm_b1
import normkit.activation.batch.evonorm_b2 as _evonorm_b2
import normkit.activation.batch.frozen_batchnorm as _frozen_batchnorm
import normkit.activation.batch.ghost_batchnorm as _ghost_batchnorm
import normkit.activation.batch.iternorm as _iternorm
import normkit.activation.batch.l1_batchnorm as _l1_batchnorm
import normkit.activation.batch.mean_only_batchnorm as _mean_only_batchnorm
import normkit.activation.batch.membrane_batchnorm as _membrane_batchnorm
import normkit.activation.batch.onlinenorm as _onlinenorm
import normkit.activation.batch.phi_s as _phi_s
import normkit.activation.batch.powernorm as _powernorm
import normkit.activation.batch.repair as _repair
import normkit.activation.batch.switchable_norm as _switchable_norm
import normkit.activation.batch.tensor_minmax_norm as _tensor_minmax_norm
import normkit.activation.batch.unifiednorm as _unifiednorm
import normkit.activation.conditional.adain as _adain
import normkit.activation.conditional.adain_modulated as _adain_modulated
import normkit.activation.conditional.adalin as _adalin
import normkit.activation.conditional.adaln_zero as _adaln_zero
import normkit.activation.conditional.adaptive_groupnorm as _adaptive_groupnorm
import normkit.activation.conditional.adaptive_layernorm as _adaptive_layernorm
import normkit.activation.conditional.conditional_batchnorm as _conditional_batchnorm
import normkit.activation.conditional.cross_modal_adain as _cross_modal_adain
import normkit.activation.conditional.fadain as _fadain
import normkit.activation.conditional.fade as _fade
import normkit.activation.conditional.film as _film
import normkit.activation.conditional.fin as _fin
import normkit.activation.conditional.gdwct as _gdwct
import normkit.activation.conditional.layernorm_tuning as _layernorm_tuning
import normkit.activation.conditional.mixstyle_layernorm as _mixstyle_layernorm
import normkit.activation.conditional.motion_adaptive_norm as _motion_adaptive_norm
import normkit.activation.conditional.motion_layernorm as _motion_layernorm
import normkit.activation.conditional.sawn as _sawn
import normkit.activation.conditional.spade as _spade
import normkit.activation.sets.diff_groupnorm as _diff_groupnorm
import normkit.activation.sets.dualnorm as _dualnorm
import normkit.activation.sets.gnp as _gnp
import normkit.activation.sets.graph_layernorm as _graph_layernorm
import normkit.activation.sets.graph_norm as _graph_norm
import normkit.activation.sets.graph_size_norm as _graph_size_norm
import normkit.activation.sets.graph_transformer_layer as _graph_transformer_layer
import normkit.activation.sets.graphsaint_norm as _graphsaint_norm
import normkit.activation.sets.mean_subtraction_norm as _mean_subtraction_norm
import normkit.activation.sets.msgnorm as _msgnorm
import normkit.activation.sets.pair_norm as _pair_norm
import normkit.activation.sets.point_norm as _point_norm
import normkit.activation.sets.reverse_point_norm as _reverse_point_norm
import normkit.activation.spatial.broadcast_residual as _broadcast_residual
import normkit.activation.spatial.ccnorm as _ccnorm
import normkit.activation.spatial.csnorm as _csnorm
import normkit.activation.spatial.divisive_norm as _divisive_norm
import normkit.activation.spatial.evonorm_s0 as _evonorm_s0
import normkit.activation.spatial.evonorm_s1 as _evonorm_s1
import normkit.activation.spatial.evonorm_s2 as _evonorm_s2
import normkit.activation.spatial.frn as _frn
import normkit.activation.spatial.gcblock as _gcblock
import normkit.activation.spatial.gdn as _gdn
import normkit.activation.spatial.gdn_parametric as _gdn_parametric
import normkit.activation.spatial.global_control_norm as _global_control_norm
import normkit.activation.spatial.grn as _grn
import normkit.activation.spatial.groupnorm as _groupnorm
import normkit.activation.spatial.ibn as _ibn
import normkit.activation.spatial.iln as _iln
import normkit.activation.spatial.instance_norm_placement as _instance_norm_placement
import normkit.activation.spatial.instancenorm as _instancenorm
import normkit.activation.spatial.layernorm2d as _layernorm2d
import normkit.activation.spatial.local_response_norm as _local_response_norm
import normkit.activation.spatial.pcnorm as _pcnorm
import normkit.activation.spatial.placement_search as _placement_search
import normkit.activation.spatial.regionnorm_basic as _regionnorm_basic
import normkit.activation.spatial.regionnorm_learnable as _regionnorm_learnable
import normkit.activation.spatial.rmsnorm2d as _rmsnorm2d
import normkit.activation.spatial.scnorm as _scnorm
import normkit.activation.spatial.stain_norm as _stain_norm
import normkit.activation.spatial.subspectralnorm as _subspectralnorm
import normkit.activation.spatial.tlu as _tlu
import normkit.activation.token.af_kan as _af_kan
import normkit.activation.token.alignment_uniformity as _alignment_uniformity
import normkit.activation.token.bidirectional_mean_feature_norm as _bidirectional_mean_feature_norm
import normkit.activation.token.cosine_norm as _cosine_norm
import normkit.activation.token.crmsnorm as _crmsnorm
import normkit.activation.token.derf as _derf
import normkit.activation.token.dyt as _dyt
import normkit.activation.token.eln as _eln
import normkit.activation.token.feature_norm as _feature_norm
import normkit.activation.token.fixnorm as _fixnorm
import normkit.activation.token.gated_rmsnorm as _gated_rmsnorm
import normkit.activation.token.grouped_rmsnorm as _grouped_rmsnorm
import normkit.activation.token.hyperspherical_head as _hyperspherical_head
import normkit.activation.token.l1_layernorm as _l1_layernorm
import normkit.activation.token.l2_feature_norm as _l2_feature_norm
import normkit.activation.token.layernorm as _layernorm
import normkit.activation.token.prenormalized_layernorm as _prenormalized_layernorm
import normkit.activation.token.revin as _revin
import normkit.activation.token.rmsnorm as _rmsnorm
import normkit.activation.token.scalenorm as _scalenorm
import normkit.activation.token.simplenorm as _simplenorm
import normkit.activation.token.srmsnorm as _srmsnorm
import normkit.attention.adversarial_attention as _adversarial_attention
import normkit.attention.differential as _differential
import normkit.attention.differential_integral as _differential_integral
import normkit.attention.flow_attention as _flow_attention
import normkit.attention.fourier as _fourier
import normkit.attention.galerkin as _galerkin
import normkit.attention.gated_linear as _gated_linear
import normkit.attention.liger_attention as _liger_attention
import normkit.attention.lightning as _lightning
import normkit.attention.low_rank_attention as _low_rank_attention
import normkit.attention.minimal_transformer as _minimal_transformer
import normkit.attention.norm_aware_linear as _norm_aware_linear
import normkit.attention.normalized_attention as _normalized_attention
import normkit.attention.polynormer as _polynormer
import normkit.attention.qk_norm as _qk_norm
import normkit.attention.qkv_norm as _qkv_norm
import normkit.attention.rnope as _rnope
import normkit.attention.softmax as _softmax
import normkit.attention.softmax_free as _softmax_free
import normkit.attention.softplus_attention as _softplus_attention
import normkit.attention.tpe_2d as _tpe_2d
import normkit.attention.transnormer as _transnormer
import normkit.density.cinc_conv as _cinc_conv
import normkit.density.circle_moebius as _circle_moebius
import normkit.density.cnf as _cnf
import normkit.density.data_mollification as _data_mollification
import normkit.density.dependent_data_likelihood as _dependent_data_likelihood
import normkit.density.double_moebius as _double_moebius
import normkit.density.ebflow as _ebflow
import normkit.density.fair_flow as _fair_flow
import normkit.density.ferumal_coupling as _ferumal_coupling
import normkit.density.flow_hmc as _flow_hmc
import normkit.density.flow_imh as _flow_imh
import normkit.density.free_form_flow as _free_form_flow
import normkit.density.interventional_flow_loss as _interventional_flow_loss
import normkit.density.jet_coupling as _jet_coupling
import normkit.density.mam_energy_loss as _mam_energy_loss
import normkit.density.nanoflow as _nanoflow
import normkit.density.neutra as _neutra
import normkit.density.nfe as _nfe
import normkit.density.path_gradient_loss as _path_gradient_loss
import normkit.density.rational_quadratic_spline as _rational_quadratic_spline
import normkit.density.reverse_alignment_loss as _reverse_alignment_loss
import normkit.density.simflow_objective as _simflow_objective
import normkit.density.smooth_mixture as _smooth_mixture
import normkit.density.tail_adaptive_base as _tail_adaptive_base
import normkit.density.tail_lu as _tail_lu
import normkit.density.tarflow_block as _tarflow_block
import normkit.density.to_flow as _to_flow
import normkit.federated.fedlabel_loss as _fedlabel_loss
import normkit.federated.fedlog_branches as _fedlog_branches
import normkit.federated.fedlog_classifier as _fedlog_classifier
import normkit.federated.fedrap as _fedrap
import normkit.federated.fedrap_loss as _fedrap_loss
import normkit.federated.margin_log_loss as _margin_log_loss
import normkit.gradient.adamp as _adamp
import normkit.gradient.agc as _agc
import normkit.gradient.blockwise_lr as _blockwise_lr
import normkit.gradient.conda as _conda
import normkit.gradient.gradient_normalized_smoothness as _gradient_normalized_smoothness
import normkit.gradient.gradnorm as _gradnorm
import normkit.gradient.grams as _grams
import normkit.gradient.lawn as _lawn
import normkit.gradient.muon as _muon
import normkit.gradient.normalized_gd as _normalized_gd
import normkit.gradient.normuon as _normuon
import normkit.gradient.relevance_decay as _relevance_decay
import normkit.gradient.sgdp as _sgdp
import normkit.gradient.sinkgd as _sinkgd
import normkit.gradient.stable_spam as _stable_spam
import normkit.gradient.swan as _swan
import normkit.gradient.wd_scaling as _wd_scaling
import normkit.inference.cema_filter as _cema_filter
import normkit.inference.gaussian_normality as _gaussian_normality
import normkit.inference.lineas as _lineas
import normkit.inference.nearest_mean as _nearest_mean
import normkit.inference.test_batch_renorm as _test_batch_renorm
import normkit.loss.conr as _conr
import normkit.loss.delta_l as _delta_l
import normkit.loss.density_normalized_edge_loss as _density_normalized_edge_loss
import normkit.loss.h_calibration as _h_calibration
import normkit.loss.ldreg as _ldreg
import normkit.loss.mtard_balance as _mtard_balance
import normkit.loss.nd_loss as _nd_loss
import normkit.loss.nkd as _nkd
import normkit.loss.ps_kd as _ps_kd
import normkit.loss.reward_transform as _reward_transform
import normkit.loss.sigmoid_loss as _sigmoid_loss
import normkit.loss.storm_features as _storm_features
import normkit.loss.storm_rescaler as _storm_rescaler
import normkit.loss.uskd as _uskd
import normkit.manifold.gbw_batchnorm as _gbw_batchnorm
import normkit.manifold.gyrobn as _gyrobn
import normkit.manifold.gyrobn_grassmann as _gyrobn_grassmann
import normkit.manifold.hyperbolic_contrastive as _hyperbolic_contrastive
import normkit.manifold.liebn as _liebn
import normkit.manifold.manifold_kernel as _manifold_kernel
import normkit.manifold.manifold_lipschitz as _manifold_lipschitz
import normkit.manifold.mobius_linear as _mobius_linear
import normkit.manifold.poincare_conv2d as _poincare_conv2d
import normkit.manifold.poincare_linear as _poincare_linear
import normkit.manifold.poincare_midpoint_batchnorm as _poincare_midpoint_batchnorm
import normkit.manifold.radius_scaling as _radius_scaling
import normkit.manifold.riemannian_batchnorm as _riemannian_batchnorm
import normkit.quant.learned_rounding as _learned_rounding
import normkit.quant.norm_tweaking_loss as _norm_tweaking_loss
import normkit.quant.nsnquant as _nsnquant
import normkit.quant.reconstruction_loss as _reconstruction_loss
import normkit.quant.rounding_regularizer as _rounding_regularizer
import normkit.quant.shiftquant as _shiftquant
import normkit.residual.deepnorm as _deepnorm
import normkit.residual.depth_scaled_sandwich as _depth_scaled_sandwich
import normkit.residual.factorized_layernorm as _factorized_layernorm
import normkit.residual.fake_layernorm as _fake_layernorm
import normkit.residual.fixup_residual as _fixup_residual
import normkit.residual.hybridnorm as _hybridnorm
import normkit.residual.layernorm_scaling as _layernorm_scaling
import normkit.residual.mix_ln as _mix_ln
import normkit.residual.modality_norm as _modality_norm
import normkit.residual.ngpt as _ngpt
import normkit.residual.normformer as _normformer
import normkit.residual.peri_norm as _peri_norm
import normkit.residual.post_norm as _post_norm
import normkit.residual.pre_norm as _pre_norm
import normkit.residual.qk_norm_layer as _qk_norm_layer
import normkit.residual.res_post_norm as _res_post_norm
import normkit.residual.residual_scaling as _residual_scaling
import normkit.residual.skipinit as _skipinit
import normkit.residual.tleg_layernorm as _tleg_layernorm
import normkit.residual.widenet as _widenet
import normkit.text.candidates.alias_normalization as _alias_normalization
import normkit.text.candidates.candidate_ensemble as _candidate_ensemble
import normkit.text.candidates.ngram_candidates as _ngram_candidates
import normkit.text.decide.lexical_decision as _lexical_decision
import normkit.text.decide.nil_decision as _nil_decision
import normkit.text.measures.lexical_evaluation as _lexical_evaluation
import normkit.text.measures.retrieval_measures as _retrieval_measures
import normkit.text.rewrite.coreference_normalization as _coreference_normalization
import normkit.text.rewrite.homophone_normalization as _homophone_normalization
import normkit.text.rewrite.lithuanian_numerals as _lithuanian_numerals
import normkit.text.rewrite.symbolic_forest as _symbolic_forest
import normkit.text.tables.column_text as _column_text
import normkit.text.tables.header_paths as _header_paths
import normkit.text.tables.table_normalization as _table_normalization
import normkit.text.training.calibration_set as _calibration_set
import normkit.text.training.character_alignment as _character_alignment
import normkit.text.training.contrastive_calibration_loss as _contrastive_calibration_loss
import normkit.text.training.in_batch_ranking_loss as _in_batch_ranking_loss
import normkit.text.training.multi_aspect_fusion as _multi_aspect_fusion
import normkit.text.training.phrase_to_node as _phrase_to_node
import normkit.text.training.rank_calibration_loss as _rank_calibration_loss
import normkit.text.training.rank_regularized_loss as _rank_regularized_loss
import normkit.text.training.span_subtype_classifier as _span_subtype_classifier
import normkit.text.training.typo_noise as _typo_noise
import normkit.text.training.unlikelihood_calibration_loss as _unlikelihood_calibration_loss
import normkit.transformer.transformer_layer as _transformer_layer
import normkit.weight.alds_decompose as _alds_decompose
import normkit.weight.alpha_dropout as _alpha_dropout
import normkit.weight.cross_initialization as _cross_initialization
import normkit.weight.equiangular_basis as _equiangular_basis
import normkit.weight.equiangular_basis_objective as _equiangular_basis_objective
import normkit.weight.fixup_block as _fixup_block
import normkit.weight.generalized_gaussian_init as _generalized_gaussian_init
import normkit.weight.group_orthogonality as _group_orthogonality
import normkit.weight.ibp_batchnorm as _ibp_batchnorm
import normkit.weight.ibp_regularizer as _ibp_regularizer
import normkit.weight.lambda_orthogonality as _lambda_orthogonality
import normkit.weight.nf_block as _nf_block
import normkit.weight.ngpt_weights as _ngpt_weights
import normkit.weight.normalize_and_project as _normalize_and_project
import normkit.weight.relevance_penalty as _relevance_penalty
import normkit.weight.scaled_weight_standardization as _scaled_weight_standardization
import normkit.weight.sdd_linear as _sdd_linear
import normkit.weight.selu as _selu
import normkit.weight.sigma_reparam as _sigma_reparam
import normkit.weight.simplex_classifier as _simplex_classifier
import normkit.weight.snnk_relu as _snnk_relu
import normkit.weight.sparse_etf_classifier as _sparse_etf_classifier
import normkit.weight.spectral_norm as _spectral_norm
import normkit.weight.spectral_regularizer as _spectral_regularizer
import normkit.weight.tleg_linear as _tleg_linear
import normkit.weight.wasserstein_init_regularizer as _wasserstein_init_regularizer
import normkit.weight.weight_compander as _weight_compander
import normkit.weight.weight_conditioning as _weight_conditioning
import normkit.weight.weight_norm as _weight_norm
import normkit.weight.weight_standardization as _weight_standardization
import normkit.weight.zero_mean_linear as _zero_mean_linear
from normkit import catalog as catalog
from normkit import ops as ops
from normkit import statistics as statistics
from normkit.attention import AttentionCore as AttentionCore
from normkit.attention import Recurrent as Recurrent
from normkit.attention import projection_fraction as projection_fraction
from normkit.attention.attention_separation import Separation
from normkit.catalog import Card as Card
from normkit.catalog import card as card
from normkit.catalog import create as create
from normkit.catalog import method as method
from normkit.catalog import methods as methods
from normkit.density.conditional_flow_matching import Velocity
from normkit.density.dgfs_step import Step
from normkit.density.dgfs_transition import Transition
from normkit.density.fair_flow import FairParts, LogDensity
from normkit.density.flow_hmc import Energy, Leapt
from normkit.density.imh_step import Moved
from normkit.density.isir_step import Chosen
from normkit.density.mala import Walked
from normkit.density.neutra import Pulled
from normkit.density.simflow_objective import EvidenceBound
from normkit.density.stochastic_flow_langevin import Overdamped, Underdamped
from normkit.density.stochastic_flow_metropolis import Jumped
from normkit.density.transport_quality import Quality
from normkit.federated import disparity as disparity
from normkit.federated import keep_local as keep_local
from normkit.federated import simulate as simulate
from normkit.federated import stack as stack
from normkit.federated import strategy as strategy
from normkit.federated.batchnorm_candidates import Candidates
from normkit.federated.disparity_decomposition import Disparity
from normkit.federated.fedlabel_select import Selected
from normkit.federated.fedlog_scaling import Scaled
from normkit.federated.norm_transfer import Transferred
from normkit.federated.pooled_covariance import Pooled
from normkit.gradient import param_groups as param_groups
from normkit.gradient.adamp import Groups
from normkit.inference import RejectionSampling as RejectionSampling
from normkit.inference import retrieve as retrieve
from normkit.inference import steered as steered
from normkit.inference import steering_loss as steering_loss
from normkit.inference.adaptive_weighted_rejection_sampling import Sampled
from normkit.inference.ausuc import AUSUC
from normkit.inference.cema_filter import Kept
from normkit.inference.hubness import Hubness
from normkit.inference.local_normalization_distortion import Distortion
from normkit.inference.pcb_merge import Merged
from normkit.inference.residual_ebm_bounds import Bounds
from normkit.inference.residual_ebm_resample import Resampled
from normkit.kinds import Estimator as Estimator
from normkit.kinds import Fitted as Fitted
from normkit.kinds import Loss as Loss
from normkit.kinds import Method as Method
from normkit.kinds import Parametrization as Parametrization
from normkit.kinds import Text as Text
from normkit.kinds import Transform as Transform
from normkit.lab.api import compare as compare
from normkit.manifold import exp as exp
from normkit.manifold import log as log
from normkit.manifold import mean as mean
from normkit.manifold import power as power
from normkit.manifold import require_definite as require_definite
from normkit.manifold import rsqrt as rsqrt
from normkit.manifold import spectral as spectral
from normkit.manifold import sqrt as sqrt
from normkit.manifold import to_geoopt as to_geoopt
from normkit.norm import Norm as Norm
from normkit.probe.hessian_criteria import Criteria
from normkit.probe.hessian_density import Density
from normkit.probe.hessian_spectrum import Spectrum
from normkit.probe.plasticity_probe import Plasticity
from normkit.probe.shuffling_distortion import ShufflingDistortion
from normkit.residual import Block as Block
from normkit.residual import Branch as Branch
from normkit.residual import Placement as Placement
from normkit.residual import WholeLayer as WholeLayer
from normkit.residual import Wiring as Wiring
from normkit.residual import deepnorm_constants as deepnorm_constants
from normkit.residual.stream import NormName, Sublayer
from normkit.surgery.adapting import adapt as adapt
from normkit.surgery.batch_statistics import recalibrate as recalibrate
from normkit.surgery.caching import nsnquant_cache as nsnquant_cache
from normkit.surgery.converting import convert as convert
from normkit.surgery.folding import fold as fold
from normkit.surgery.fusing import fuse as fuse
from normkit.surgery.quantizing import perplexity as perplexity
from normkit.surgery.quantizing import quantize as quantize
from normkit.surgery.recognition.recognize import Match as Match
from normkit.surgery.recognition.recognize import Recognized as Recognized
from normkit.surgery.recognition.recognize import recognize as recognize
from normkit.surgery.removing import remove as remove
from normkit.surgery.repair import average as average
from normkit.surgery.swapping import swap as swap
from normkit.transformer import Decoder as Decoder
from normkit.transformer import Encoder as Encoder
from normkit.transformer import EncoderDecoder as EncoderDecoder
from normkit.transformer import preset as preset
from normkit.transformer.attention import LayerCache
from normkit.transformer.transformer_layer import LinearName, Turns
from normkit.watching import watch as watch

__version__: str
__all__ = [
    "AFKAN",
    "AGC",
    "CNF",
    "ELN",
    "FADE",
    "FIN",
    "FRN",
    "GDN",
    "GDWCT",
    "GNP",
    "GRN",
    "IBN",
    "ILN",
    "LAWN",
    "NFE",
    "NGPT",
    "NKD",
    "PHIS",
    "PSKD",
    "SAWN",
    "SELU",
    "SGDP",
    "SPADE",
    "SWAN",
    "TLU",
    "TPE2D",
    "USKD",
    "ALDSDecompose",
    "AdaB2N",
    "AdaGroupNorm",
    "AdaIN",
    "AdaINModulated",
    "AdaLIN",
    "AdaLNZero",
    "AdaLayerNormContinuous",
    "AdaLayerNormZero",
    "AdaLayerNormZeroSingle",
    "AdamP",
    "AdaptiveGroupNorm",
    "AdaptiveLayerNorm",
    "AdversarialAttention",
    "AliasNormalization",
    "AlignmentUniformity",
    "AlphaBatchNorm",
    "AlphaDropout",
    "AttentionCore",
    "AttentiveBatchNorm",
    "BatchChannelNorm",
    "BatchInstanceNorm",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "BatchNormLinearBounded",
    "BatchRenorm",
    "BidirectionalMeanFeatureNorm",
    "Block",
    "BlockwiseLR",
    "Branch",
    "BroadcastResidual",
    "CCNorm",
    "CEMAFilter",
    "CInCConv",
    "CRMSNorm",
    "CSNorm",
    "CalibrationSet",
    "CandidateEnsemble",
    "Card",
    "CharacterAlignment",
    "CircleMoebius",
    "ColumnText",
    "ConR",
    "Conda",
    "ConditionalBatchNorm",
    "ContrastiveCalibrationLoss",
    "CoreferenceNormalization",
    "CosineNorm",
    "CrossInitialization",
    "CrossModalAdaIN",
    "DataMollification",
    "Decoder",
    "DecorrelatedBatchNorm",
    "DeepNorm",
    "DeepseekV3RMSNorm",
    "DeepseekV4UnweightedRMSNorm",
    "DeltaL",
    "DensityNormalizedEdgeLoss",
    "DependentDataLikelihood",
    "DepthScaledSandwich",
    "Derf",
    "DiffGroupNorm",
    "Differential",
    "DifferentialIntegral",
    "DivisiveNorm",
    "DoubleMoebius",
    "DualNorm",
    "DyT",
    "DynamicTanh",
    "EBFlow",
    "Encoder",
    "EncoderDecoder",
    "EquiangularBasis",
    "EquiangularBasisObjective",
    "Estimator",
    "EvoNorm2dB0",
    "EvoNorm2dB1",
    "EvoNorm2dB2",
    "EvoNorm2dS0",
    "EvoNorm2dS1",
    "EvoNorm2dS2",
    "EvoNormB0",
    "EvoNormB1",
    "EvoNormB2",
    "EvoNormS0",
    "EvoNormS1",
    "EvoNormS2",
    "FAdaIN",
    "FactorizedLayerNorm",
    "FairFlow",
    "FakeLayerNorm",
    "FeatureNorm",
    "FedLabelLoss",
    "FedLoGBranches",
    "FedLoGClassifier",
    "FedRAP",
    "FedRAPLoss",
    "FerumalCoupling",
    "FiLM",
    "FilterResponseNormAct2d",
    "FilterResponseNormTlu2d",
    "Fitted",
    "FixNorm",
    "FixupBlock",
    "FixupResidual",
    "FlowAttention",
    "FlowHMC",
    "FlowIMH",
    "Fourier",
    "FreeFormFlow",
    "FrozenBatchNorm",
    "FrozenBatchNorm2d",
    "FusedRMSNormGated",
    "GBWBatchNorm",
    "GCBlock",
    "GDNParametric",
    "Galerkin",
    "GatedLinear",
    "GatedRMSNorm",
    "GaussianNormality",
    "Gemma2RMSNorm",
    "Gemma3RMSNorm",
    "GemmaRMSNorm",
    "GeneralizedGaussianInit",
    "GhostBatchNorm",
    "GlobalControlNorm",
    "GlobalResponseNorm",
    "GradNorm",
    "GradientNormalizedSmoothness",
    "Grams",
    "GraphLayerNorm",
    "GraphNorm",
    "GraphSAINTNorm",
    "GraphSizeNorm",
    "GraphTransformerLayer",
    "GroupNorm",
    "GroupNorm1",
    "GroupOrthogonality",
    "GroupedRMSNorm",
    "GyroBN",
    "GyroBNGrassmann",
    "HCalibration",
    "HeaderPaths",
    "HomophoneNormalization",
    "HybridNorm",
    "HyperbolicContrastive",
    "HypersphericalHead",
    "IBPBatchNorm",
    "IBPRegularizer",
    "InBatchRankingLoss",
    "InstanceNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "InstanceNormPlacement",
    "InterventionalFlowLoss",
    "IterNorm",
    "JetCoupling",
    "L1BatchNorm",
    "L1LayerNorm",
    "L2FeatureNorm",
    "LDReg",
    "LambdaOrthogonality",
    "LayerNorm",
    "LayerNorm1d",
    "LayerNorm2d",
    "LayerNormScaling",
    "LayerNormTuning",
    "LearnedRounding",
    "LexicalDecision",
    "LexicalEvaluation",
    "LieBN",
    "LigerAttention",
    "Lightning",
    "LinEAS",
    "LithuanianNumerals",
    "Llama4TextL2Norm",
    "LlamaRMSNorm",
    "LocalResponseNorm",
    "Loss",
    "LowRankAttention",
    "MAMEnergyLoss",
    "MTARDBalance",
    "MambaRMSNormGated",
    "ManifoldKernel",
    "ManifoldLipschitz",
    "MarginLogLoss",
    "Match",
    "MeanOnlyBatchNorm",
    "MeanSubtractionNorm",
    "MembraneBatchNorm",
    "Method",
    "MinimalTransformer",
    "MistralRMSNorm",
    "MixLN",
    "MixStyleLayerNorm",
    "MobiusLinear",
    "ModalityNorm",
    "MotionAdaptiveNorm",
    "MotionLayerNorm",
    "MsgNorm",
    "MultiAspectFusion",
    "Muon",
    "NDLoss",
    "NFBlock",
    "NGPTWeights",
    "NSNQuant",
    "NanoFlow",
    "NearestMean",
    "NemotronLayerNorm1P",
    "NeuTra",
    "NgramCandidates",
    "NilDecision",
    "NorMuon",
    "Norm",
    "NormAwareLinear",
    "NormFormer",
    "NormTweakingLoss",
    "NormalizeAndProject",
    "NormalizedAttention",
    "NormalizedGD",
    "Olmo2RMSNorm",
    "OlmoLayerNorm",
    "OnlineNorm",
    "PCNorm",
    "PairNorm",
    "Parametrization",
    "PathGradientLoss",
    "PeriNorm",
    "PhraseToNode",
    "PixelNorm",
    "Placement",
    "PlacementSearch",
    "PoincareConv2d",
    "PoincareLinear",
    "PoincareMidpointBatchNorm",
    "PointNorm",
    "Polynormer",
    "PostNorm",
    "PowerNorm",
    "PreNorm",
    "PrenormalizedLayerNorm",
    "QKNorm",
    "QKNormLayer",
    "QKVNorm",
    "Qwen2RMSNorm",
    "Qwen3NextRMSNormGated",
    "Qwen3RMSNorm",
    "RMSNorm",
    "RMSNorm2d",
    "RNoPE",
    "RadiusScaling",
    "RankCalibrationLoss",
    "RankRegularizedLoss",
    "RationalQuadraticSpline",
    "Recognized",
    "ReconstructionLoss",
    "Recurrent",
    "RegionNormBasic",
    "RegionNormLearnable",
    "RejectionSampling",
    "RelevanceDecay",
    "RelevancePenalty",
    "Repair",
    "ResPostNorm",
    "ResidualScaling",
    "RetrievalMeasures",
    "RevIN",
    "ReverseAlignmentLoss",
    "ReversePointNorm",
    "RewardTransform",
    "RiemannianBatchNorm",
    "RoundingRegularizer",
    "SCNorm",
    "SDDLinear",
    "SNNKReLU",
    "SRMSNorm",
    "ScaleNorm",
    "ScaledWeightStandardization",
    "ShiftQuant",
    "SigmaReparam",
    "SigmoidLoss",
    "SimFlowObjective",
    "SimpleNorm",
    "SimpleNorm2d",
    "SimplexClassifier",
    "SinkGD",
    "SkipInit",
    "SmoothMixture",
    "Softmax",
    "SoftmaxFree",
    "SoftplusAttention",
    "SpanSubtypeClassifier",
    "SparseETFClassifier",
    "SpectralNorm",
    "SpectralRegularizer",
    "StableSPAM",
    "StainNorm",
    "StormFeatures",
    "StormRescaler",
    "SubSpectralNorm",
    "SwitchNorm1d",
    "SwitchNorm2d",
    "SwitchNorm3d",
    "SwitchableNorm",
    "SymbolicForest",
    "SyncBatchNorm",
    "T5LayerNorm",
    "TLEGLayerNorm",
    "TLEGLinear",
    "TOFlow",
    "TableNormalization",
    "TailAdaptiveBase",
    "TailLU",
    "TarFlowBlock",
    "TensorMinMaxNorm",
    "TestBatchRenorm",
    "Text",
    "TransNormer",
    "Transform",
    "TransformerLayer",
    "TypoNoise",
    "UnifiedNorm",
    "UnlikelihoodCalibrationLoss",
    "WDScaling",
    "WassersteinInitRegularizer",
    "WeightCompander",
    "WeightConditioning",
    "WeightNorm",
    "WeightStandardization",
    "WholeLayer",
    "WideNet",
    "Wiring",
    "ZeroMeanLinear",
    "adapt",
    "adaptive_weighted_rejection_sampling",
    "alds_allocate",
    "alds_error",
    "answer_choice_normalization",
    "apfl_alpha",
    "apfl_step",
    "attention_entropy",
    "attention_separation",
    "ausuc",
    "average",
    "batchnorm_candidates",
    "bnpo",
    "calibrated_stacking",
    "card",
    "catalog",
    "cema_loss",
    "chart_elbo",
    "chart_responsibility",
    "chart_step",
    "classifier_norm_reset",
    "classwise_average",
    "compare",
    "compositional_partial_correlation",
    "conditional_flow_matching",
    "conformal_quantiles",
    "connection_laplacian",
    "convert",
    "create",
    "deepnorm_constants",
    "dgfs_log_reward",
    "dgfs_step",
    "dgfs_transition",
    "disparity",
    "disparity_decomposition",
    "drm_adaptation_loss",
    "drm_ensemble",
    "drm_loss",
    "dual_dynamic_inverted_softmax",
    "dual_inverted_softmax",
    "dynamic_inverted_softmax",
    "effective_learning_rate",
    "el2n",
    "exp",
    "fairness_frontier",
    "farms",
    "fedbn_average",
    "fedlabel_aggregate",
    "fedlabel_select",
    "fedlaw",
    "fedlaw_aggregate",
    "fedlog_scaling",
    "fedlog_synthetic",
    "fedselect_aggregate",
    "fedselect_grow",
    "fedselect_step",
    "filter_normalization",
    "fold",
    "fuse",
    "gaussian_normality_threshold",
    "geometric_samples",
    "global_magnitude_pruning",
    "grand",
    "hessian_criteria",
    "hessian_density",
    "hessian_spectrum",
    "hubness",
    "ibp_init",
    "imh_step",
    "inverted_softmax",
    "isir_step",
    "keep_local",
    "laplacian_penalty",
    "lie_coordinates",
    "lie_sample",
    "local_dimension",
    "local_normalization_distortion",
    "log",
    "loss_plane",
    "lp_dictionary",
    "magsac_loss",
    "mala",
    "mano",
    "marginal_consistency",
    "mean",
    "method",
    "methods",
    "norm_transfer",
    "normalized_logistic_gd",
    "nsnquant_cache",
    "ops",
    "ot_cfm",
    "panda_data_probability",
    "panda_operation_norm",
    "panda_path_probability",
    "param_groups",
    "pcb_merge",
    "per_class_gradient_normalization",
    "perplexity",
    "pgfed_client",
    "pgfed_server",
    "pit_calibration_error",
    "pit_entropy",
    "plasticity_probe",
    "poincare_distance_matrix",
    "polar_decomposition",
    "pooled_covariance",
    "power",
    "preset",
    "principal_gradient",
    "projection_fraction",
    "quantile_recalibration",
    "quantize",
    "recalibrate",
    "recognize",
    "regularized_relevance_reward",
    "relative_representations",
    "remove",
    "require_definite",
    "residual_ebm_bounds",
    "residual_ebm_loss",
    "residual_ebm_resample",
    "retrieve",
    "rotation_residual",
    "rsqrt",
    "score_normalization",
    "shuffling_distortion",
    "simulate",
    "snnk_exponential",
    "spectral",
    "sqrt",
    "stack",
    "statistics",
    "steered",
    "steering_loss",
    "stochastic_flow_langevin",
    "stochastic_flow_metropolis",
    "storm_loss",
    "storm_meta_loss",
    "strategy",
    "subtb_loss",
    "swap",
    "tail_index",
    "tangent_normalization",
    "to_geoopt",
    "to_poincare",
    "transport_quality",
    "unselectable_keys",
    "vector_diffusion",
    "watch",
]

class AdaB2N(_adab2n.AdaB2N):
    """Normalize each channel by a mean over the batch that weighs the tasks, not the samples, with learned shares."""
    def __init__(
        self,
        num_features: int,
        *,
        num_tasks: int,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        kappa: float = 1.0,
        init_weight: float = 0.0,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, task_ids: Tensor | None = None) -> Tensor: ...

class AdaIN(_adain.AdaIN):
    """Give each channel of the content the mean and the standard deviation of the style's channel."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        unbiased: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, content: Tensor, style: Tensor) -> Tensor: ...

class AdaINModulated(_adain_modulated.AdaINModulated):
    """Normalize each channel of each sample, then apply a gain and a shift that a style network made."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor: ...

class AdaLIN(_adalin.AdaLIN):
    """Blend instance and layer normalization by a learned share per channel, then apply a style's gain and shift."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor: ...

class AdaLNZero(_adaln_zero.AdaLNZero):
    """Give each token zero mean and unit variance, then a gain, a shift and a gate that start at nothing."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        sublayers: int = 2,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        embedding_dim: int,
        *,
        condition_features: int | None = None,
        sublayers: int = 2,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> tuple[Tensor, ...]: ...

AdaLayerNormZero = AdaLNZero

class AdaLayerNormZeroSingle(AdaLNZero):
    """AdaLNZero with sublayers=1."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        sublayers: int = 1,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        embedding_dim: int,
        *,
        condition_features: int | None = None,
        sublayers: int = 1,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> tuple[Tensor, ...]: ...

class AdamP(_adamp.AdamP):
    """Take Adam's step, less its share along the weight where the weight's length does not matter."""
    def __init__(
        self,
        params: Groups,
        *,
        lr: float = 0.001,
        betas: tuple[float, float] = ...,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        nesterov: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class AdaptiveGroupNorm(_adaptive_groupnorm.AdaptiveGroupNorm):
    """Group-normalize an image, then scale and shift its channels by the time step and the class."""
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        num_groups: int = 32,
        affine: bool = True,
        activation: bool = True,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> Tensor: ...

class AdaGroupNorm(AdaptiveGroupNorm):
    """AdaptiveGroupNorm with affine=False, activation=False."""
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        num_groups: int = 32,
        affine: bool = False,
        activation: bool = False,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> Tensor: ...

class AdaptiveLayerNorm(_adaptive_layernorm.AdaptiveLayerNorm):
    """Give each token zero mean and unit variance, then a gain and a shift made from the sample's condition."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        eps: float = 1e-06,
        scale_first: bool = False,
        affine: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        embedding_dim: int,
        conditioning_embedding_dim: int | None = None,
        elementwise_affine: bool = False,
        eps: float = 1e-06,
        *,
        scale_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> Tensor: ...

class AdaLayerNormContinuous(AdaptiveLayerNorm):
    """AdaptiveLayerNorm with scale_first=True, affine=True, eps=1e-05."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        eps: float = 1e-05,
        scale_first: bool = True,
        affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        embedding_dim: int,
        conditioning_embedding_dim: int | None = None,
        elementwise_affine: bool = True,
        eps: float = 1e-05,
        *,
        scale_first: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> Tensor: ...

def adaptive_weighted_rejection_sampling(
    log_probs: Tensor, accept: Tensor, gumbel: Tensor, *, max_rejects: int | None = None
) -> Sampled:
    """Draw tokens without replacement until one is accepted, and weight it so that the mass accepted is estimated."""
    ...

class AdversarialAttention(_adversarial_attention.AdversarialAttention):
    """Weigh the tokens of a text by an additive score, and in training also under an attack on these scores."""
    def __init__(
        self,
        dim: int,
        *,
        epsilon: float = 1.0,
        variant: str = "at",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, hidden: Tensor, mask: Tensor) -> Tensor: ...

class AFKAN(_af_kan.AFKAN):
    """Lay each feature out over a grid of bumps made of activations, weigh them down to one number, and mix linearly."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid: int = 5,
        order: int = 3,
        method: str = "global",
        norm: str = "layer",
        activation: str = "silu",
        combine: str = "quad1",
        normalize: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class AGC(_agc.AGC):
    """Clip each unit's gradient to a share of the length of its weight, then take another optimizer's step."""
    def __init__(
        self,
        params: Groups,
        *,
        base: str = "sgd",
        lr: float,
        clipping: float | None = 0.01,
        eps: float = 0.001,
        maximize: bool = False,
        **base_kwargs: Any,
    ) -> None: ...

def alds_allocate(*weights: Tensor, keep: float, splits: int = 3, search: bool = True) -> tuple[Tensor, Tensor]:
    """Return the rank and the number of splits of each layer that make the largest relative error least."""
    ...

class ALDSDecompose(_alds_decompose.ALDSDecompose):
    """Cut a weight to a low rank, block by block of its input channels."""
    def __init__(self, *, rank: int, splits: int = 1, scheme: int = 0) -> None: ...

def alds_error(weight: Tensor, *, splits: int = 1, scheme: int = 0) -> Tensor:
    """Return the relative error of a weight whose columns are split and cut to each rank."""
    ...

class AliasNormalization(_alias_normalization.AliasNormalization):
    """Bring each name to the canonical name that it equals, that it is an alias of, or that is spelled most like it."""
    def __init__(self, vocabulary: Mapping[str, Sequence[str]], threshold: float = 0.8) -> None: ...

class AlignmentUniformity(_alignment_uniformity.AlignmentUniformity):
    """Measure how close unit vectors of one label are, and how evenly all of them are spread."""
    def __init__(
        self,
        *,
        alpha: float = 2.0,
        temperature: float = 2.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]: ...

class AlphaBatchNorm(_alpha_batchnorm.AlphaBatchNorm):
    """Normalize each channel by the batch; in evaluation mix the running moments with the test batch's."""
    def __init__(
        self,
        num_features: int,
        *,
        target_weight: float = 0.1,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class AlphaDropout(_alpha_dropout.AlphaDropout):
    """Set some numbers to the least that SELU gives, and shift and scale all so that mean and variance stay."""
    def __init__(
        self,
        *,
        p: float = 0.1,
        alpha: float = -1.7580993408473766,
        mean: float = 0.0,
        var: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, mask: Tensor | None = None) -> Tensor: ...

def answer_choice_normalization(log_probs: Tensor, against: Tensor | None = None, *, mode: str = "none") -> Tensor:
    """Score each answer choice by its log-probability, less what it has without the question, by its length, or shared."""
    ...

def apfl_alpha(*states: Tensor, entries: Sequence[str], lr: float, decay: float = 0.02) -> Tensor:
    """Move a client's mixture of personal and shared model against its gradient, and keep it in [0, 1]."""
    ...

def apfl_step(
    *states: Tensor, entries: Sequence[str], lr: float, alpha: float = 0.5, adapt: bool = False, mixing: str = "output"
) -> tuple[Tensor, ...]:
    """Train a shared and a personal model for a round, the personal one on the mixture of both."""
    ...

def attention_entropy(weights: Tensor, *, reduce: bool = True) -> Tensor:
    """Return the entropy of rows that sum to 1, in nats: (N, heads) means over the queries, or (N, heads, T)."""
    ...

def attention_separation(weights: Tensor, values: Tensor, *, top: int) -> Separation:
    """Compare the weighted sum of the heaviest tokens with every other token, as weighted."""
    ...

class AttentiveBatchNorm(_attentive_batchnorm.AttentiveBatchNorm):
    """Normalize each feature over the batch's frames, then scale and shift it as a small network of the input says."""
    def __init__(
        self,
        num_features: int,
        *,
        hidden_features: int,
        level: str = "frame",
        eps: float = 1e-05,
        momentum: float = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, mask: Tensor | None = None) -> Tensor: ...

def ausuc(scores: Tensor, target: Tensor, seen: Tensor) -> AUSUC:
    """Sweep the constant that is taken off seen classes, and measure the area under both accuracies."""
    ...

class BatchChannelNorm(_batch_channel_norm.BatchChannelNorm):
    """Normalize each channel over the batch, then groups of channels within each sample."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-05,
        batch_eps: float = 1e-05,
        momentum: float = 0.1,
        estimate: bool = False,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class BatchInstanceNorm(_batch_instance_norm.BatchInstanceNorm):
    """Normalize each channel by the batch's and by the sample's moments, and mix both by a learned gate."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class BatchRenorm(_batch_renorm.BatchRenorm):
    """Normalize each channel by the batch, then correct it towards what the running statistics would have given."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 0.001,
        momentum: float = 0.01,
        r_max: float = 3.0,
        d_max: float = 5.0,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class BatchNorm(_batchnorm.BatchNorm):
    """Center each channel on the batch's mean and divide it by the batch's standard deviation."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        bias: bool = True,
        track_running_stats: bool = True,
        sync: bool = False,
        process_group=None,
        channels_last: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        sync: bool = False,
        process_group=None,
        channels_last: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        sync: bool = False,
        channels_last: bool = False,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

BatchNorm1d = BatchNorm
BatchNorm2d = BatchNorm
BatchNorm3d = BatchNorm

class SyncBatchNorm(BatchNorm):
    """BatchNorm with sync=True."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        bias: bool = True,
        track_running_stats: bool = True,
        sync: bool = True,
        process_group=None,
        channels_last: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        sync: bool = True,
        process_group=None,
        channels_last: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        sync: bool = True,
        channels_last: bool = False,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def batchnorm_candidates(mean: Tensor, var: Tensor, count: Tensor, loss: Tensor) -> Candidates:
    """Average the batch statistics of candidate models over devices, and pick the candidate of the least loss."""
    ...

class BatchNormLinearBounded(_batchnorm_linear_bounded.BatchNormLinearBounded):
    """Divide each feature by its length over the batch, next to an activation whose gain may fall with depth."""
    def __init__(
        self,
        num_features: int,
        *,
        mean_reduction: bool = False,
        force_factor: float | None = None,
        activation: str = "identity",
        layer_index: int = 0,
        exponent: float = 0.0,
        order: str = "act-norm",
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class BidirectionalMeanFeatureNorm(_bidirectional_mean_feature_norm.BidirectionalMeanFeatureNorm):
    """Average the features of an image and of its mirror image and divide the mean by its length."""
    def __init__(self, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None) -> None: ...
    def __call__(self, feature: Tensor, flipped: Tensor) -> Tensor: ...

class BlockwiseLR(_blockwise_lr.BlockwiseLR):
    """Take AdamW's step, at a multiple of the learning rate that the kind of block sets."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.0006,
        betas: tuple[float, float] = ...,
        eps: float = 1e-08,
        weight_decay: float = 0.1,
        multipliers: Mapping[str, float] | None = None,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

def bnpo(
    rewards: Tensor,
    group: Tensor,
    *,
    mode: str = "bnpo",
    min_value: float = 0.0,
    max_value: float = 1.0,
    eps: float = 1e-06,
) -> Tensor:
    """Subtract from each reward the mean of its prompt, and weight it by how rare such a mean is."""
    ...

class BroadcastResidual(_broadcast_residual.BroadcastResidual):
    """Normalize a spectrogram in bands, average over its frequencies, and add what time says to every frequency."""
    def __init__(
        self,
        in_channels: int,
        *,
        out_channels: int | None = None,
        index: int = 0,
        stride: Sequence[int] = ...,
        num_groups: int = 5,
        dropout: float = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def calibrated_stacking(scores: Tensor, seen: Tensor, *, gamma: float | None) -> Tensor:
    """Subtract a constant from the scores of the classes that were seen in training."""
    ...

class CalibrationSet(_calibration_set.CalibrationSet):
    """Choose, among outputs of a model that a metric has scored, those it is calibrated on."""
    def __init__(self) -> None: ...

class CandidateEnsemble(_candidate_ensemble.CandidateEnsemble):
    """Join the candidates of several sources, each id with the largest of its weighted scores."""
    def __init__(self, generators: Mapping[str, Mapping[str, float | None]]) -> None: ...

class CCNorm(_ccnorm.CCNorm):
    """Give each channel the Fourier amplitudes of its batch norm and the phases of the input less a share of its mean."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class CEMAFilter(_cema_filter.CEMAFilter):
    """Keep samples whose prediction is neither too unsure nor like those before it."""
    def __init__(
        self,
        num_classes: int,
        *,
        high: float = 0.4,
        low: float | None = None,
        factor: float = 0.6,
        warmup: int | None = None,
        similarity: float | None = 0.05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, logits: Tensor) -> Kept: ...

def cema_loss(
    logits: Tensor,
    teacher_logits: Tensor,
    *,
    alpha: float = 3.0,
    beta: float = 3.0,
    gamma: float = 1.0,
    temperature: float = 1.0,
    max_entropy: float | None = None,
) -> Tensor:
    """Add the entropy of a model at test time to its divergence from a teacher and from the teacher's choice."""
    ...

class CharacterAlignment(_character_alignment.CharacterAlignment):
    """Align words letter by letter, count which letters stand for which, and write clean text with the wrong ones."""
    def __init__(self, match: float = 1, mismatch: float = -1, gap: float = -1, filler: str = "▁") -> None: ...

def chart_elbo(
    x: Tensor,
    reconstruction: Tensor,
    latent: Tensor,
    log_det: Tensor,
    *,
    sigma_x: float,
    sigma_z: float,
    low: float = 0.05,
    support: float = 0.2,
    slope: float = 100.0,
) -> Tensor:
    """Add the energy of a code, its reconstruction error and minus the log-determinant of the latent flow."""
    ...

def chart_responsibility(
    losses: Tensor,
    extra: Tensor | None = None,
    *,
    weights: Sequence[float] | None = None,
    log: bool = False,
    floor: float = -25.0,
) -> Tensor:
    """Turn the losses of a point under K charts into the chance that it belongs to each."""
    ...

def chart_step(
    point: Tensor,
    matrix: Tensor,
    shift: Tensor,
    weights: Tensor,
    target: Tensor,
    *,
    step_size: float,
    retraction: str = "project",
) -> Tensor:
    """Move a point towards a target along the manifold, in every chart, and average the results by the weights."""
    ...

class CInCConv(_cinc_conv.CInCConv):
    """Convolve an image so that each pixel sees only those before it, and itself triangularly."""
    def __init__(
        self,
        channels: int,
        kernel_size: int | tuple[int, int] = 3,
        *,
        order: str = "TL",
        unit_diagonal: bool = True,
        bias: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

class CircleMoebius(_circle_moebius.CircleMoebius):
    """Crowd angles about a point of the circle, smoothly."""
    def __init__(self, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None) -> None: ...
    def __call__(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]: ...

def classifier_norm_reset(weight: Tensor, *, norm: float = 1.7) -> Tensor:
    """Scale every row of a classifier to one length."""
    ...

def classwise_average(*states: Tensor, entries: Sequence[str]) -> tuple[Tensor, ...]:
    """Average classifiers row by row, each client by its samples and by its share of that row's class."""
    ...

class CNF(_cnf.CNF):
    """Carry each sample along a velocity field, and sum up how much the field thins the density out."""
    def __init__(
        self,
        dim: int,
        *,
        hidden: int = 64,
        method: str = "rk4",
        steps: int = 8,
        end_time: float = 1.0,
        adjoint: bool = False,
        tolerance: float = 1e-06,
        field: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

class ColumnText(_column_text.ColumnText):
    """Write a column as its name, the number and lengths of its distinct values, and the values, frequent ones first."""
    def __init__(self, limit: int = 512) -> None: ...

def compositional_partial_correlation(x: Tensor, *, pseudocount: float = 0.0, ddof: int = 1) -> tuple[Tensor, Tensor]:
    """Return the partial correlations of the logarithms of parts, whatever the total of each row."""
    ...

class Conda(_conda.Conda):
    """Take Adam's second moment in the basis of the momentum's singular vectors."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.001,
        betas: tuple[float, float] = ...,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        update_proj_gap: int | None = 2000,
        scale: float = 1.0,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class ConditionalBatchNorm(_conditional_batchnorm.ConditionalBatchNorm):
    """Normalize each channel by the batch's moments, then give it the gain and shift of its sample's class."""
    def __init__(
        self,
        num_features: int,
        *,
        num_classes: int,
        norm: str = "batch",
        shared: bool = False,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, labels: Tensor) -> Tensor: ...

def conditional_flow_matching(
    x0: Tensor,
    x1: Tensor,
    t: Tensor | None = None,
    noise: Tensor | None = None,
    *,
    path: str = "linear",
    sigma: float = 0.0,
) -> Velocity:
    """Return a point at a time between each pair, and the velocity that a network is to have there."""
    ...

def conformal_quantiles(target: Tensor, quantiles: Tensor, levels: Tensor, new_quantiles: Tensor) -> Tensor:
    """Add to each predicted quantile the error that held-out data stay below at its level."""
    ...

def connection_laplacian(adjacency: Tensor, connection: Tensor, *, normalization: str | None = None) -> Tensor:
    """Put transports between tangent frames into the blocks of a graph's Laplacian."""
    ...

class ConR(_conr.ConR):
    """Push apart the features of samples that are predicted alike though their labels are far from each other."""
    def __init__(
        self,
        window: float = 1.0,
        temperature: float = 0.07,
        eta: float = 0.01,
        variant: str = "exponential",
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, features: Tensor, target: Tensor, prediction: Tensor, weights: Tensor | None = None
    ) -> Tensor: ...

class ContrastiveCalibrationLoss(_contrastive_calibration_loss.ContrastiveCalibrationLoss):
    """Pull the mean states of good outputs together, against those of all outputs of the same text."""
    def __init__(
        self,
        positives: int | None = None,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, states: Tensor, labels: Tensor) -> Tensor: ...

class CoreferenceNormalization(_coreference_normalization.CoreferenceNormalization):
    """Write every mention of a named entity in the longest form that the text has for it."""
    def __init__(self) -> None: ...

class CosineNorm(_cosine_norm.CosineNorm):
    """Take the cosine between the input and each row of the weight, in the place of their product."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        center: bool = False,
        scale: float = 1.0,
        eps: float = 1e-12,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class CRMSNorm(_crmsnorm.CRMSNorm):
    """Divide a zero-mean vector, stored without its last entry, by the root mean square of the whole."""
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class CrossInitialization(_cross_initialization.CrossInitialization):
    """Begin the embeddings of new tokens at the text encoder's output for a mean name, and pull them back to there."""
    def __init__(
        self,
        *,
        columns: int = 2,
        length: int = 77,
        anchor: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, embeddings: Tensor, initial: Tensor) -> Tensor: ...

class CrossModalAdaIN(_cross_modal_adain.CrossModalAdaIN):
    """Give each feature of the content's tokens the mean and the standard deviation over the style's tokens."""
    def __init__(
        self, num_features: int, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, content: Tensor, style: Tensor) -> Tensor: ...

class CSNorm(_csnorm.CSNorm):
    """Instance-normalize the channels that a nearly binary gate opens for the image, leave the others as they are."""
    def __init__(
        self,
        num_features: int,
        *,
        hidden_channels: int | None = None,
        eps: float = 1e-05,
        gate_eps: float = 1e-08,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class DataMollification(_data_mollification.DataMollification):
    """Mix data with noise, all noise at the first iteration and none from the last on."""
    def __init__(
        self,
        iterations: int,
        *,
        start: float = 0,
        end: float = 3,
        tau: float = 0.7,
        clip_min: float = 1e-09,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, noise: Tensor, iteration: Tensor | int) -> Tensor: ...

class DecorrelatedBatchNorm(_decorrelated_batchnorm.DecorrelatedBatchNorm):
    """Center the channels on the batch's mean and turn and scale each group of them so that its covariance is one."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 1,
        eps: float = 0.001,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class DeepNorm(_deepnorm.DeepNorm):
    """Normalize the stream after each sublayer, the stream weighted up by a constant that grows with depth."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int,
        norm: NormName = "layernorm",
        attention: Sublayer,
        feedforward: Sublayer,
        alpha=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class DeltaL(_delta_l.DeltaL):
    """Average the losses of tokens over responses, each weighted by a power of its length."""
    def __init__(
        self,
        mode: str = "delta-l",
        alpha: float = 1.0,
        max_length: int | None = None,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, loss: Tensor, mask: Tensor) -> Tensor: ...

class DensityNormalizedEdgeLoss(_density_normalized_edge_loss.DensityNormalizedEdgeLoss):
    """Divide the loss of a graph's edges by the number of edges that are labeled, not by the number of all."""
    def __init__(
        self,
        mode: str = "dnorm",
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma: float = 1.0,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, logits: Tensor, target: Tensor) -> Tensor: ...

class DependentDataLikelihood(_dependent_data_likelihood.DependentDataLikelihood):
    """Return the joint log density of latents whose samples are correlated as given."""
    def __init__(
        self, dim: int, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, z: Tensor, relatedness: Tensor) -> Tensor: ...

class DepthScaledSandwich(_depth_scaled_sandwich.DepthScaledSandwich):
    """Normalize what each sublayer reads and writes; the written share starts at a constant over the root of the depth."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int,
        norm: NormName = "rmsnorm",
        attention: Sublayer,
        feedforward: Sublayer,
        attention_constant=0.283,
        feedforward_constant=0.432,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class Derf(_derf.Derf):
    """Squash every entry with an error function of learned slope and shift instead of normalizing."""
    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        shift: float = 0.0,
        function: str = "erf",
        bias: bool = True,
        channels_last: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def dgfs_log_reward(x: Tensor, log_reward: Tensor, t: Tensor, *, sigma: float = 1.0, t_end: float = 1.0) -> Tensor:
    """Go from the log density of the reference law to the log reward as time goes on."""
    ...

def dgfs_step(x: Tensor, drift: Tensor, noise: Tensor, *, sigma: float = 1.0, dt: float = 0.01) -> Step:
    """Move each state along its drift with noise, and return the two terms of the path's log weight."""
    ...

def dgfs_transition(
    x: Tensor, following: Tensor, drift: Tensor, t: Tensor, *, sigma: float = 1.0, dt: float = 0.01
) -> Transition:
    """Return the log density of a step under the drift, and that of its way back under Brownian motion."""
    ...

class DiffGroupNorm(_diff_groupnorm.DiffGroupNorm):
    """Share each node out over learned groups, batch-normalize each group, and add a little of that to the node."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int,
        balance: float = 0.01,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class Differential(_differential.Differential):
    """Subtract a second softmax map from the first, by a learned weight, and normalize each head's result."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        depth: int,
        causal: bool = True,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class DifferentialIntegral(_differential_integral.DifferentialIntegral):
    """Subtract a second softmax map from the first and add the first's average row, so that rows sum to 1 again."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        depth: int,
        eps: float = 1e-05,
        causal: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

def disparity_decomposition(joint: Tensor) -> Disparity:
    """Split the information that predictions hold about a sensitive group into what clients share and what they hide."""
    ...

class DivisiveNorm(_divisive_norm.DivisiveNorm):
    """Subtract the mean of the neighbourhood, and divide by the neighbourhood's root mean square."""
    def __init__(
        self,
        num_features: int,
        *,
        center_window: int = 3,
        scale_window: int = 5,
        sigma: float = 1.0,
        affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class DoubleMoebius(_double_moebius.DoubleMoebius):
    """Move points of the unit sphere towards a direction and its opposite alike."""
    def __init__(self, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None) -> None: ...
    def __call__(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]: ...

def drm_adaptation_loss(logits: Tensor, *, label: str = "own", threshold: float = 0.25, gamma: float = 1.0) -> Tensor:
    """Sum over heads the cross-entropy to pseudo-labels, on the samples whose label is sure enough."""
    ...

def drm_ensemble(logits: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Average the heads' probabilities, each weighted by a power of its entropy."""
    ...

def drm_loss(own_logits: Tensor, shared_logits: Tensor, target: Tensor) -> Tensor:
    """Average the cross-entropies of each domain's own head and of the shared head on the domain's samples."""
    ...

def dual_dynamic_inverted_softmax(
    similarity: Tensor,
    query_bank: Tensor,
    gallery_bank: Tensor,
    *,
    beta_query: float = 0.5025125628140703,
    beta_gallery: float = 3.0,
    top: int = 1,
) -> Tensor:
    """Multiply two dynamic inverted softmaxes, of a bank of queries and of a bank of gallery items."""
    ...

def dual_inverted_softmax(
    similarity: Tensor,
    query_bank: Tensor,
    gallery_bank: Tensor,
    *,
    beta_query: float = 0.5025125628140703,
    beta_gallery: float = 3.0,
) -> Tensor:
    """Multiply two inverted softmaxes of each score, one over a bank of queries, one over a bank of gallery items."""
    ...

class DualNorm(_dualnorm.DualNorm):
    """Normalize neighbours by their sampled points, then the sampled points by the normalized neighbours."""
    def __init__(
        self,
        num_features: int,
        *,
        mean: str = "local",
        std: str = "global",
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, grouped: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]: ...

def dynamic_inverted_softmax(similarity: Tensor, bank: Tensor, *, beta: float = 20.0, top: int = 1) -> Tensor:
    """Take the inverted softmax of a query's scores where its best item is a hub of the bank, else leave them."""
    ...

class DyT(_dyt.DyT):
    """Squash every entry with a tanh of learned slope instead of normalizing."""
    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        bias: bool = True,
        channels_last: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

DynamicTanh = DyT

class EBFlow(_ebflow.EBFlow):
    """Match the score of a flow of linear layers and monotone curves to the data's."""
    def __init__(
        self,
        dim: int,
        *,
        layers: int = 2,
        slope: float = 0.3,
        objective: str = "ssm",
        std: float = 0.1,
        eps: float = 0.1,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, probe: Tensor | None = None) -> Tensor: ...

def effective_learning_rate(
    weight: Tensor, grad: Tensor, *, lr: float, optimizer: str = "sgd", weight_decay: float = 0.0
) -> tuple[Tensor, ...]:
    """Return how fast a weight in front of a norm really learns."""
    ...

def el2n(logits: Tensor, target: Tensor, *, score: str = "l2") -> Tensor:
    """Measure how far each sample's softmax is from its label."""
    ...

class ELN(_eln.ELN):
    """Squash every entry as RMSNorm would if the other entries stood still."""
    def __init__(
        self,
        dim: int,
        *,
        beta: float | None = None,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class EquiangularBasis(_equiangular_basis.EquiangularBasis):
    """Score classes by the cosine of the features with fixed vectors that are nearly orthogonal."""
    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        temperature: float = 0.07,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class EquiangularBasisObjective(_equiangular_basis_objective.EquiangularBasisObjective):
    """Add up the absolute cosines between vectors, as far as they exceed a threshold."""
    def __init__(
        self,
        *,
        threshold: float = 0.002,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, weight: Tensor) -> Tensor: ...

class EvoNormB0(_evonorm_b0.EvoNormB0):
    """Divide each channel by the larger of the batch's standard deviation and a line through the sample's own."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        apply_act: bool = True,
        unbiased: bool = False,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

EvoNorm2dB0 = EvoNormB0

class EvoNormB1(_evonorm_b1.EvoNormB1):
    """Divide each channel by the larger of the batch's deviation and the sample's root mean square times x + 1."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        apply_act: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

EvoNorm2dB1 = EvoNormB1

class EvoNormB2(_evonorm_b2.EvoNormB2):
    """Divide each channel by the larger of the batch's deviation and the sample's root mean square less x."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        apply_act: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

EvoNorm2dB2 = EvoNormB2

class EvoNormS0(_evonorm_s0.EvoNormS0):
    """Swish each channel with a learned slope and divide it by its group's standard deviation."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-05,
        affine: bool = True,
        apply_act: bool = True,
        divide: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

EvoNorm2dS0 = EvoNormS0

class EvoNormS1(_evonorm_s1.EvoNormS1):
    """Apply SiLU and divide by the standard deviation of the group's input."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-05,
        apply_act: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

EvoNorm2dS1 = EvoNormS1

class EvoNormS2(_evonorm_s2.EvoNormS2):
    """Apply SiLU and divide by the root mean square of the group's input."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-05,
        apply_act: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

EvoNorm2dS2 = EvoNormS2

class FactorizedLayerNorm(_factorized_layernorm.FactorizedLayerNorm):
    """Move each vector onto the hyperplane across (1, ..., 1), then give it the length sqrt(dim); either can be off."""
    def __init__(
        self,
        dim: int,
        *,
        scale: bool = True,
        project: bool = True,
        affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class FAdaIN(_fadain.FAdaIN):
    """Give the masked part of the content the mean and deviation of the masked part of the style; blend by alpha."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        alpha: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, content: Tensor, style: Tensor, content_mask: Tensor | None = None, style_mask: Tensor | None = None
    ) -> Tensor: ...

class FADE(_fade.FADE):
    """Normalize each channel, then give every pixel a gain and a shift made from another network's feature map."""
    def __init__(
        self,
        num_features: int,
        *,
        feature_channels: int,
        kernel_size: int = 3,
        norm: str = "batch",
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, feature: Tensor) -> Tensor: ...

class FairFlow(_fair_flow.FairFlow):
    """Encode each of two groups by a flow so that the codes have one law, and nobody can tell the groups apart."""
    def __init__(
        self,
        *,
        flow0: int | nn.Module,
        flow1: int | nn.Module,
        density0: LogDensity | None = None,
        density1: LogDensity | None = None,
        gamma: float = 0.5,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, x0: Tensor, log_q0_x0: Tensor, x1: Tensor, log_q1_x1: Tensor, prediction: Tensor
    ) -> FairParts: ...

def fairness_frontier(joint: Tensor, *, global_limit: float, local_limit: float) -> Tensor:
    """Find the least error of any classifier, random ones too, that is fair within two limits."""
    ...

class FakeLayerNorm(_fake_layernorm.FakeLayerNorm):
    """Normalize as LayerNorm does, until told to divide by a constant instead, which makes the map linear."""
    def __init__(
        self,
        dim: int,
        *,
        average_std: float = 1.0,
        momentum: float = 0.9,
        bias: bool = True,
        eps: float = 1e-05,
        sync: bool = False,
        process_group: ProcessGroup | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def farms(
    weight: Tensor,
    *,
    num_row_samples: int = 100,
    q_ratio: float = 2.0,
    sampling_ops_per_dim: int | None = 10,
    step_size: int = 10,
    conv_norm: float = 0.5,
    fit: str = "xmin_mid",
    xmin_pos: float = 2,
    bins: int = 100,
) -> tuple[Tensor, ...]:
    """Return the exponent of a power law in the tail of a weight's squared singular values, and measures beside it."""
    ...

class FeatureNorm(_feature_norm.FeatureNorm):
    """Set the vector of all of a sample's features to a fixed length."""
    def __init__(
        self,
        num_features: int,
        *,
        scale: float | None = None,
        center: bool = False,
        eps: float = 1e-12,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def fedbn_average(*states: Tensor, entries: Sequence[str], local: Sequence[str] = ...) -> tuple[Tensor, ...]:
    """Average the clients' states by their sample counts, and leave each what is its own."""
    ...

def fedlabel_aggregate(*states: Tensor, entries: Sequence[str]) -> tuple[Tensor, ...]:
    """Average what clients learned from labels, all alike, and from pseudo-labels, by their number; then both."""
    ...

class FedLabelLoss(_fedlabel_loss.FedLabelLoss):
    """Lower the cross-entropy with pseudo-labels, and the distance from the model that was trained on labels."""
    def __init__(
        self,
        threshold: float = 0.3,
        measure: str = "variance",
        temperature: float = 1.0,
        pseudo_weight: float = 1.0,
        consistency: float = 0.05,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, strong: Tensor, plain: Tensor, received: Tensor, trained: Tensor) -> Tensor: ...

def fedlabel_select(
    received: Tensor, trained: Tensor, *, threshold: float = 0.3, measure: str = "variance", temperature: float = 1.0
) -> Selected:
    """Label each sample by whichever of two models is surer of it, if its largest probability is above a threshold."""
    ...

def fedlaw(
    *states: Tensor,
    entries: Sequence[str],
    function: str = "exp",
    optimizer: str = "adam",
    lr: float = 0.01,
    epochs: int = 20,
) -> tuple[Tensor, ...]:
    """Learn on the server's own data which clients count how much, and how far the sum of their states shrinks."""
    ...

def fedlaw_aggregate(*states: Tensor, entries: Sequence[str], function: str = "exp") -> tuple[Tensor, ...]:
    """Sum the clients' states by shares, and shrink the sum; both are given by numbers that can be learned."""
    ...

class FedLoGBranches(_fedlog_branches.FedLoGBranches):
    """Weigh two classifiers' losses, and their probabilities, by how many neighbours a node has."""
    def __init__(
        self, *, threshold: float = 3, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(
        self, head_distance: Tensor, tail_distance: Tensor, degree: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]: ...

class FedLoGClassifier(_fedlog_classifier.FedLoGClassifier):
    """Classify by the distance to prototypes, after moving each query as its neighbourhood says."""
    def __init__(
        self,
        dim: int,
        way: int,
        shot: int,
        *,
        layers: int = 2,
        move: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, query: Tensor, neighbors: Tensor, prototypes: Tensor) -> Tensor: ...

def fedlog_scaling(
    features: Tensor, label: Tensor, gamma: Tensor, accuracy: Tensor, *, step: float = 0.001, goal: float = 0.8
) -> Scaled:
    """Pull features towards their common mean, further for classes that are already learned."""
    ...

def fedlog_synthetic(features: Tensor, class_rate: Tensor) -> Tensor:
    """Average the clients' synthetic nodes of each class, by how frequent the class is at each."""
    ...

class FedRAP(_fedrap.FedRAP):
    """Rate items from the sum of a personal and a common embedding of each."""
    def __init__(
        self,
        num_items: int,
        dim: int,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, items: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...

class FedRAPLoss(_fedrap_loss.FedRAPLoss):
    """Add to the cross-entropy of ratings a push apart of both embeddings, and a norm of the common one."""
    def __init__(
        self,
        *,
        independence: float = 0.1,
        sparsity: float = 0.1,
        norm: str = "l1",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, rating: Tensor, target: Tensor, personal: Tensor, common: Tensor) -> Tensor: ...

def fedselect_aggregate(*states: Tensor, entries: Sequence[str], masked: Sequence[str]) -> tuple[Tensor, ...]:
    """Average each position over the clients to which it is shared, and give it to these."""
    ...

def fedselect_grow(
    *states: Tensor, entries: Sequence[str], rate: float = 0.25, limit: float = 0.8
) -> tuple[Tensor, ...]:
    """Make those shared weights personal that changed most since the last growth."""
    ...

def fedselect_step(
    *states: Tensor, entries: Sequence[str], own: Sequence[bool], lr: float = 0.05
) -> tuple[Tensor, ...]:
    """Step along given gradients, each step on personal positions only or on shared ones only."""
    ...

class FerumalCoupling(_ferumal_coupling.FerumalCoupling):
    """Scale and shift half of the coordinates by functions of the other half, each a sum of kernels."""
    def __init__(
        self,
        dim: int,
        *,
        num_points: int,
        kernel: str = "squared-exponential",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

class FiLM(_film.FiLM):
    """Scale and shift each channel by numbers made from the sample's condition."""
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> Tensor: ...

def filter_normalization(direction: Tensor, weight: Tensor, *, norm: str = "filter", ignore: str = "biasbn") -> Tensor:
    """Give each filter of a direction the length that the weight's filter has."""
    ...

class FIN(_fin.FIN):
    """Normalize each channel of each sample, then apply a gain and a shift that are periodic in an angle."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, phi: Tensor) -> Tensor: ...

class FixNorm(_fixnorm.FixNorm):
    """Give every word vector the same fixed length, so that rare words do not lose by short vectors."""
    def __init__(
        self,
        dim: int,
        *,
        scale: float = 1.0,
        eps: float = 1e-12,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class FixupBlock(_fixup_block.FixupBlock):
    """Add two or three convolutions to their input, with scalar shifts and a multiplier in the place of norms."""
    def __init__(
        self,
        channels: int,
        *,
        out_channels: int | None = None,
        stride: int = 1,
        shortcut: str = "pad",
        bottleneck: bool = False,
        num_layers: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class FixupResidual(_fixup_residual.FixupResidual):
    """Build a layer that normalizes nothing: it shifts and scales by learned numbers, and starts as the identity."""
    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        activation: str = "relu",
        causal: bool = True,
        **further: Any,
    ) -> None: ...

class FlowAttention(_flow_attention.FlowAttention):
    """Fix what flows into each query and out of each key to 1, so that keys compete and queries share, in linear time."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        eps: float = 1e-06,
        clamp: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, query_mask: Tensor | None = None
    ) -> Tensor: ...

class FlowHMC(_flow_hmc.FlowHMC):
    """Walk on the energy landscape that a flow has straightened, and keep the target exact."""
    def __init__(
        self,
        flow: int | nn.Module,
        *,
        energy: str | Energy,
        step_size: float,
        steps: int,
        coefficients: list[float] | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, momentum: Tensor, uniform: Tensor) -> Leapt: ...

class FlowIMH(_flow_imh.FlowIMH):
    """Propose samples of a flow, whatever the state, so that the chain jumps between modes and samples the target."""
    def __init__(
        self,
        flow: int | nn.Module,
        *,
        energy: str | Energy,
        base_energy: Energy | None = None,
        coefficients: list[float] | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, z: Tensor, uniform: Tensor) -> Moved: ...

class Fourier(_fourier.Fourier):
    """Normalize queries and keys head by head, and weigh the values by their product as it is, without a softmax."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        norm: str | None = "layer",
        eps: float = 1e-05,
        pos_dim: int = 0,
        causal: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pos: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor: ...

class FreeFormFlow(_free_form_flow.FreeFormFlow):
    """Train an encoder f and a decoder g as a flow: likelihood by probes of both, and reconstruction."""
    def __init__(
        self,
        dim: int,
        *,
        latent: int,
        hidden: int = 64,
        beta: float = 10.0,
        probes: int = 1,
        encode: Callable[[Tensor], Tensor] | None = None,
        decode: Callable[[Tensor], Tensor] | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, probes: Tensor | None = None) -> Tensor: ...

class FRN(_frn.FRN):
    """Divide each channel of each sample by its root mean square over space, then cut it off at a learned threshold."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-06,
        apply_act: bool = True,
        learnable_eps: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

FilterResponseNormTlu2d = FRN

class FilterResponseNormAct2d(FRN):
    """FRN with apply_act=False."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-06,
        apply_act: bool = False,
        learnable_eps: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class FrozenBatchNorm(_frozen_batchnorm.FrozenBatchNorm):
    """Scale and shift each channel by fixed numbers: the running moments, gain and shift of a trained batch norm."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

FrozenBatchNorm2d = FrozenBatchNorm

class Galerkin(_galerkin.Galerkin):
    """Normalize keys and values head by head, and multiply the queries by their averaged product."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        norm: str | None = "layer",
        eps: float = 1e-05,
        pos_dim: int = 0,
        causal: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pos: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor: ...

class GatedLinear(_gated_linear.GatedLinear):
    """Sum the values of the past with a learned decay of each value feature, and normalize the result of each head."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        norm: str | None = "layernorm",
        eps: float = 1e-05,
        causal: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, refine: Tensor, mask: Tensor | None = None
    ) -> Tensor: ...

class GatedRMSNorm(_gated_rmsnorm.GatedRMSNorm):
    """Divide each vector by its root mean square, and multiply it by the activation of a gate, before or after."""
    @overload
    def __init__(
        self,
        dim: int,
        *,
        group_size: int | None = None,
        eps: float = 1e-06,
        norm_before_gate: bool = False,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int,
        group_size: int | None = None,
        eps: float = 1e-06,
        *,
        norm_before_gate: bool = False,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-06,
        *,
        group_size: int | None = None,
        norm_before_gate: bool = False,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, gate: Tensor | None = None) -> Tensor: ...

MambaRMSNormGated = GatedRMSNorm

class Qwen3NextRMSNormGated(GatedRMSNorm):
    """GatedRMSNorm with norm_before_gate=True."""
    @overload
    def __init__(
        self,
        dim: int,
        *,
        group_size: int | None = None,
        eps: float = 1e-06,
        norm_before_gate: bool = True,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int,
        group_size: int | None = None,
        eps: float = 1e-06,
        *,
        norm_before_gate: bool = True,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-06,
        *,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, gate: Tensor | None = None) -> Tensor: ...

class FusedRMSNormGated(GatedRMSNorm):
    """GatedRMSNorm with norm_before_gate=True."""
    @overload
    def __init__(
        self,
        dim: int,
        *,
        group_size: int | None = None,
        eps: float = 1e-06,
        norm_before_gate: bool = True,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int,
        group_size: int | None = None,
        eps: float = 1e-06,
        *,
        norm_before_gate: bool = True,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-06,
        *,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, gate: Tensor | None = None) -> Tensor: ...

class GaussianNormality(_gaussian_normality.GaussianNormality):
    """Fit one Gaussian to features of normal samples, and return how far a sample lies from its mean."""
    def __init__(
        self,
        num_features: int | None = None,
        *,
        reduction: str | None = None,
        variance_threshold: float = 0.95,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor) -> Tensor: ...

def gaussian_normality_threshold(*, num_features: int, probability: float = 0.9973) -> Tensor:
    """Return the distance from the mean that a Gaussian sample stays below with a probability."""
    ...

class GBWBatchNorm(_gbw_batchnorm.GBWBatchNorm):
    """Give a batch of positive definite matrices a learned mean and variance under a learned Bures-Wasserstein metric."""
    def __init__(
        self,
        n: int,
        *,
        power: float = 1.0,
        momentum: float = 0.1,
        eps: float = 1e-05,
        exact_gradient: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GCBlock(_gcblock.GCBlock):
    """Add to every position, or multiply it by, a layer-normalized summary of the whole image."""
    def __init__(
        self,
        num_features: int,
        *,
        ratio: float = 0.0625,
        pooling: str = "att",
        fusion: Sequence[str] = ...,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GDN(_gdn.GDN):
    """Divide each channel by a learned mix of all channels' energies at its position."""
    def __init__(
        self,
        num_features: int,
        *,
        inverse: bool = False,
        power: int = 2,
        beta_min: float = 1e-06,
        gamma_init: float = 0.1,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GDNParametric(_gdn_parametric.GDNParametric):
    """Divide linear responses by a learned power of a learned mix of their powers."""
    def __init__(
        self, num_features: int, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GDWCT(_gdwct.GDWCT):
    """Center the content's channels over the batch, then mix each group of channels by a matrix made from the style."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 8,
        hidden_channels: int = 256,
        eps: float = 1e-05,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, content: Tensor, style: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...

class GeneralizedGaussianInit(_generalized_gaussian_init.GeneralizedGaussianInit):
    """Turn gamma draws and signs into weights of density exp(-(|w| / a)^nu)."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        shape_parameter: float = 1.0,
        std: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, gamma: Tensor, sign: Tensor) -> Tensor: ...

def geometric_samples(
    features: Tensor,
    covariance: Tensor,
    noise: Tensor,
    *,
    scales: Sequence[float] | None = None,
    largest: bool = True,
    jitter: float = 1e-06,
) -> Tensor:
    """Draw samples around each feature vector with a covariance that came from all clients."""
    ...

class GhostBatchNorm(_ghost_batchnorm.GhostBatchNorm):
    """Cut the batch into small ghost batches and normalize each channel of each by its own mean and variance."""
    def __init__(
        self,
        num_features: int,
        *,
        ghost_size: int = 32,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GlobalControlNorm(_global_control_norm.GlobalControlNorm):
    """Clip a whole video at two percentiles of all its values, and turn it over into [0, 1], near being 1."""
    def __init__(
        self,
        *,
        low: float = 5,
        high: float = 95,
        stride: int = 80,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, signal: Tensor) -> Tensor: ...

def global_magnitude_pruning(*weights: Tensor, sparsity: float, minimum: int = 0) -> tuple[Tensor, ...]:
    """Return a mask for each weight: 1 where it is among the largest of all layers, else 0."""
    ...

class GNP(_gnp.GNP):
    """Pool the rows of each set by a norm of learned order, divided by a learned power of their number."""
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-06,
        sets: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, index: Tensor) -> Tensor: ...

class GradientNormalizedSmoothness(_gradient_normalized_smoothness.GradientNormalizedSmoothness):
    """Take Newton's step, its matrix raised by the length of the gradient over a number that is searched for."""
    def __init__(
        self,
        gamma: float = 1.0,
        adaptive: bool = True,
        steps: int = 10,
        hessian: str = "exact",
        eps: float = 1e-08,
        gamma_min: float = 1e-09,
    ) -> None: ...

class GradNorm(_gradnorm.GradNorm):
    """Weight the losses of several tasks, and move the weights so that all tasks train at one pace."""
    def __init__(
        self,
        num_tasks: int,
        alpha: float = 1.5,
        lr: float = 0.025,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, losses: Tensor) -> Tensor: ...

class Grams(_grams.Grams):
    """Take a step of Adam's size in each entry, down the current gradient's side."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.001,
        betas: tuple[float, float] = ...,
        eps: float = 1e-06,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

def grand(features: Tensor, logits: Tensor, target: Tensor, *, bias: bool = True) -> Tensor:
    """Measure the length of each sample's gradient of the cross-entropy at the last linear layer."""
    ...

class GraphLayerNorm(_graph_layernorm.GraphLayerNorm):
    """Center all nodes of a graph on one number and divide them by one deviation."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, batch: Tensor | None = None) -> Tensor: ...

class GraphNorm(_graph_norm.GraphNorm):
    """Subtract a learned share of the graph's mean from each node, and divide by what deviation is left."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        affine: bool = True,
        shift: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, batch: Tensor | None = None) -> Tensor: ...

class GraphSizeNorm(_graph_size_norm.GraphSizeNorm):
    """Divide each node by the root of its graph's number of nodes."""
    def __init__(self, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None) -> None: ...
    def __call__(self, x: Tensor, batch: Tensor | None = None) -> Tensor: ...

class GraphTransformerLayer(_graph_transformer_layer.GraphTransformerLayer):
    """Let each node average its neighbours' values by clamped softmax scores, and normalize after each sublayer."""
    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        norm: str = "batchnorm",
        edges: bool = False,
        bias: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, x: Tensor, edge_index: Tensor, edge_features: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]: ...

class GraphSAINTNorm(_graphsaint_norm.GraphSAINTNorm):
    """Weight edges and nodes of sampled subgraphs by how rarely the sampler draws them."""
    def __init__(
        self, num_nodes: int, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(
        self,
        edge_target: Tensor,
        edge_count: Tensor,
        node_count: Tensor,
        num_subgraphs: Tensor | float,
        train_mask: Tensor,
        eval_mask: Tensor,
    ) -> tuple[Tensor, Tensor]: ...

class GRN(_grn.GRN):
    """Scale each channel by its share of the image's response, and add the input again."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-06,
        channels_last: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

GlobalResponseNorm = GRN

class GroupOrthogonality(_group_orthogonality.GroupOrthogonality):
    """Add up how far the filters of each group are from being orthonormal."""
    def __init__(
        self,
        num_groups: int,
        *,
        reg_type: str = "inter",
        min_num_filters: int = 4,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, weight: Tensor | Sequence[Tensor]) -> Tensor: ...

class GroupedRMSNorm(_grouped_rmsnorm.GroupedRMSNorm):
    """Divide each run of ``group_size`` entries of a vector by its root mean square; a learned gain an entry."""
    def __init__(
        self,
        dim: int,
        *,
        group_size: int,
        eps: float = 1e-06,
        affine: bool = True,
        bias: bool = False,
        center: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GroupNorm(_groupnorm.GroupNorm):
    """Center groups of channels of each sample on their mean and divide them by their standard deviation."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-05,
        affine: bool = True,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-05,
        affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_channels: int,
        num_groups: int = 32,
        eps: float = 1e-05,
        affine: bool = True,
        *,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GroupNorm1(GroupNorm):
    """GroupNorm with num_groups=1."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 1,
        eps: float = 1e-05,
        affine: bool = True,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-05,
        affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_channels: int,
        num_groups: int = 1,
        eps: float = 1e-05,
        affine: bool = True,
        *,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GyroBN(_gyrobn.GyroBN):
    """Move a batch of points of a curved space from its Fréchet mean to a learned point, and scale distances."""
    def __init__(
        self,
        dim: int,
        *,
        geometry: str = "poincare",
        curvature: float | None = None,
        momentum: float = 0.1,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class GyroBNGrassmann(_gyrobn_grassmann.GyroBNGrassmann):
    """Move a batch of subspaces from its mean to a learned one, and scale distances."""
    def __init__(
        self,
        n: int,
        *,
        p: int,
        channels: int = 1,
        exp_mode: str = "cayley",
        momentum: float = 0.1,
        karcher_steps: int = 1,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class HCalibration(_h_calibration.HCalibration):
    """Compare, in a window over all probabilities in order, what is said too much with what is said too little."""
    def __init__(
        self,
        num_classes: int,
        *,
        weighting: str = "clustered",
        window: int = 200,
        epsilon: float = 1e-20,
        leave_one_out: bool = True,
        loss_weight: float = 100000.0,
        num_bins: int = 15,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, probs: Tensor, target: Tensor, centroids: Tensor | None = None) -> Tensor: ...

class HeaderPaths(_header_paths.HeaderPaths):
    """Write each row, and each column, of a table with nested headers as one text that names the whole path."""
    def __init__(self, top: int = 1, left: int = 1) -> None: ...

def hessian_criteria(eigenvalues: Tensor, weights: Tensor, *, power: float = 0.5) -> Criteria:
    """Compare the negative part of a Hessian's spectrum with the positive one."""
    ...

def hessian_density(
    eigenvalues: Tensor, weights: Tensor, *, bins: int = 10000, variance: float = 1e-05, margin: float = 0.001
) -> Density:
    """Draw the density of a Hessian's spectrum from some runs of Lanczos' iteration."""
    ...

def hessian_spectrum(
    hessian: Tensor | Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    steps: int = 100,
    window: int = 10,
    eps: float = 1e-06,
    generator: torch.Generator | None = None,
) -> Spectrum:
    """Take some steps of Lanczos' iteration: the outer eigenvalues, and a quadrature of the whole spectrum."""
    ...

class HomophoneNormalization(_homophone_normalization.HomophoneNormalization):
    """Write letters of the Ge'ez script that sound alike as one of them."""
    def __init__(self, language: str = "am", level: str = "homophone") -> None: ...

def hubness(similarity: Tensor, *, top: int = 10) -> Hubness:
    """Count how often each item is among the best of a query, and measure how skewed the counts are."""
    ...

class HybridNorm(_hybridnorm.HybridNorm):
    """Build a layer whose attention normalizes queries, keys and values, and whose feedforward normalizes the stream."""
    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "rmsnorm",
        activation: str = "gelu",
        causal: bool = True,
        first_pre_norm=False,
        **further: Any,
    ) -> None: ...

class HyperbolicContrastive(_hyperbolic_contrastive.HyperbolicContrastive):
    """Raise the share of a sample's other view, or of its class, in the softmax over minus the distances to all others."""
    def __init__(
        self,
        *,
        c: float,
        temperature: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor, target: Tensor | None = None) -> Tensor: ...

class HypersphericalHead(_hyperspherical_head.HypersphericalHead):
    """Divide features by their length and classify them linearly; the loss also spreads them over the sphere."""
    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        cross_entropy: float = 1.0,
        alignment: float = 0.1,
        uniformity: float = 0.5,
        label_smoothing: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

class IBN(_ibn.IBN):
    """Instance-normalize the first channels of an image, batch-normalize the others."""
    def __init__(
        self,
        num_features: int,
        *,
        ratio: float = 0.5,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class IBPBatchNorm(_ibp_batchnorm.IBPBatchNorm):
    """Normalize each channel, and its bounds, by one mean and one deviation."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        statistics: str = "clean",
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...

def ibp_init(noise: Tensor) -> Tensor:
    """Scale standard normal noise by sqrt(2 pi) / fan_in."""
    ...

class IBPRegularizer(_ibp_regularizer.IBPRegularizer):
    """Penalize bounds that grow from the input to a ReLU, and layers whose ReLUs are nearly all on or nearly all off."""
    def __init__(
        self,
        *,
        terms: Sequence[str] = ...,
        tol: float = 0.5,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, input_lower: Tensor, input_upper: Tensor, *bounds: Tensor) -> Tensor: ...

class ILN(_iln.ILN):
    """Mix instance and layer normalization, by a learned share per channel."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def imh_step(
    x: Tensor,
    log_target: Tensor,
    log_proposal: Tensor,
    proposed: Tensor,
    log_target_proposed: Tensor,
    log_proposal_proposed: Tensor,
    uniform: Tensor,
    *,
    temperature: float = 1.0,
) -> Moved:
    """Take each proposed sample, or keep the old one, so that the chain samples the target exactly."""
    ...

class InBatchRankingLoss(_in_batch_ranking_loss.InBatchRankingLoss):
    """Hold the similarity of each anchor and its own document against that of all documents of the batch."""
    def __init__(
        self,
        scale: float = 20.0,
        similarity: str = "cosine",
        symmetric: bool = False,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, anchors: Tensor, positives: Tensor, *negatives: Tensor) -> Tensor: ...

class InstanceNormPlacement(_instance_norm_placement.InstanceNormPlacement):
    """End a residual block: normalize the branch, add the identity, with instance norm at one of four places; ReLU."""
    def __init__(
        self,
        num_features: int,
        *,
        placement: str = "none",
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, branch: Tensor, identity: Tensor) -> Tensor: ...

class InstanceNorm(_instancenorm.InstanceNorm):
    """Center each channel of each sample on its mean and divide it by its standard deviation."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        bias: bool = True,
        track_running_stats: bool = False,
        space: int | None = None,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        space: int | None = None,
        sync: bool = False,
        process_group=None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class InstanceNorm1d(InstanceNorm):
    """InstanceNorm with space=1."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        bias: bool = True,
        track_running_stats: bool = False,
        space: int | None = 1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        space: int | None = 1,
        sync: bool = False,
        process_group=None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class InstanceNorm2d(InstanceNorm):
    """InstanceNorm with space=2."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        bias: bool = True,
        track_running_stats: bool = False,
        space: int | None = 2,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        space: int | None = 2,
        sync: bool = False,
        process_group=None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class InstanceNorm3d(InstanceNorm):
    """InstanceNorm with space=3."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        bias: bool = True,
        track_running_stats: bool = False,
        space: int | None = 3,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        space: int | None = 3,
        sync: bool = False,
        process_group=None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class InterventionalFlowLoss(_interventional_flow_loss.InterventionalFlowLoss):
    """Fit the density of an outcome under a treatment to what a first model says of it, and mend that by the data."""
    def __init__(
        self, *, clip: float = 0.05, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(
        self, log_q_y: Tensor, cross_entropy_x: Tensor, cross_entropy: Tensor, treated: Tensor, propensity: Tensor
    ) -> Tensor: ...

def inverted_softmax(similarity: Tensor, bank: Tensor, *, beta: float = 20.0) -> Tensor:
    """Divide a query's score of each gallery item by what a bank of queries gives that item."""
    ...

def isir_step(
    particles: Tensor, log_target: Tensor, log_proposal: Tensor, uniform: Tensor, *, temperature: float = 1.0
) -> Chosen:
    """Choose one of K particles with the weight of target over proposal."""
    ...

class IterNorm(_iternorm.IterNorm):
    """Center the channels and remove most of their correlations by a few Newton iterations on the covariance."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 1,
        iterations: int = 5,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class JetCoupling(_jet_coupling.JetCoupling):
    """Scale and shift one half of an image's patches by a plain transformer that sees the other half."""
    def __init__(
        self,
        dim: int,
        *,
        num_tokens: int,
        kind: str = "channels",
        emb_dim: int = 256,
        depth: int = 1,
        num_heads: int = 4,
        scale_factor: float = 2.0,
        grid: tuple[int, int] | None = None,
        inverted: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

class L1BatchNorm(_l1_batchnorm.L1BatchNorm):
    """Center each channel on the batch's mean and divide it by the batch's mean absolute deviation."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class L1LayerNorm(_l1_layernorm.L1LayerNorm):
    """Centre each vector and divide by its mean absolute deviation: no square, no root."""
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-05,
        constant: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class L2FeatureNorm(_l2_feature_norm.L2FeatureNorm):
    """Divide each vector by its length and multiply it by a radius; nothing is learned."""
    def __init__(
        self, *, radius: float = 1, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class LambdaOrthogonality(_lambda_orthogonality.LambdaOrthogonality):
    """Penalize a map's distance from orthogonality where it exceeds a threshold."""
    def __init__(
        self,
        *,
        threshold: float,
        sharpness: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, weight: Tensor) -> Tensor: ...

def laplacian_penalty(f: Tensor, x: Tensor, *, t: float, normalize: bool = False) -> Tensor:
    """Sum the squared changes of a function over pairs of points, weighted by how near the points are."""
    ...

class LAWN(_lawn.LAWN):
    """Train freely at first, then hold the length of each weight where it has come to."""
    def __init__(
        self,
        params: Groups,
        *,
        base: str = "adam",
        lr: float,
        free_steps: int,
        warmup_steps: int = 0,
        min_ndim: int = 2,
        maximize: bool = False,
        **base_kwargs: Any,
    ) -> None: ...

class LayerNorm(_layernorm.LayerNorm):
    """Give each vector zero mean and unit variance, then a learned gain and shift."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float = 1e-05,
        affine: bool = True,
        bias: bool = True,
        offset: float = 0.0,
        heads: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-05,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        offset: float = 0.0,
        heads: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_channels: int | Sequence[int],
        eps: float = 1e-05,
        affine: bool = True,
        *,
        bias: bool = True,
        offset: float = 0.0,
        heads: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class OlmoLayerNorm(LayerNorm):
    """LayerNorm with affine=False."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float = 1e-05,
        affine: bool = False,
        bias: bool = True,
        offset: float = 0.0,
        heads: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-05,
        elementwise_affine: bool = False,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        offset: float = 0.0,
        heads: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_channels: int | Sequence[int],
        eps: float = 1e-05,
        affine: bool = False,
        *,
        bias: bool = True,
        offset: float = 0.0,
        heads: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class NemotronLayerNorm1P(LayerNorm):
    """LayerNorm with offset=1.0."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float = 1e-05,
        affine: bool = True,
        bias: bool = True,
        offset: float = 1.0,
        heads: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-05,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        offset: float = 1.0,
        heads: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_channels: int | Sequence[int],
        eps: float = 1e-05,
        affine: bool = True,
        *,
        bias: bool = True,
        offset: float = 1.0,
        heads: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class LayerNormScaling(_layernorm_scaling.LayerNormScaling):
    """Add to the stream what each sublayer makes of a normalized copy, made smaller in deeper layers."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int,
        depth: int,
        norm: NormName = "rmsnorm",
        attention: Sublayer,
        feedforward: Sublayer,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class LayerNormTuning(_layernorm_tuning.LayerNormTuning):
    """Give each token zero mean and unit variance, then the gain and shift of its sample's task."""
    def __init__(
        self,
        dim: int,
        *,
        num_tasks: int,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, task_ids: Tensor) -> Tensor: ...

class LayerNorm2d(_layernorm2d.LayerNorm2d):
    """Center the channels at each pixel on their mean and divide them by their standard deviation."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-06,
        affine: bool = True,
        bias: bool = True,
        space: int | None = 2,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_channels: int,
        eps: float = 1e-06,
        affine: bool = True,
        *,
        bias: bool = True,
        space: int | None = 2,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int,
        eps: float = 1e-06,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        space: int | None = 2,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class LayerNorm1d(LayerNorm2d):
    """LayerNorm2d with space=1."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-06,
        affine: bool = True,
        bias: bool = True,
        space: int | None = 1,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        num_channels: int,
        eps: float = 1e-06,
        affine: bool = True,
        *,
        bias: bool = True,
        space: int | None = 1,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int,
        eps: float = 1e-06,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        space: int | None = 1,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class LDReg(_ldreg.LDReg):
    """Raise the local dimension of features, by the geometric mean over samples."""
    def __init__(
        self,
        k: int = 64,
        *,
        estimator: str = "moments",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor, reference: Tensor | None = None) -> Tensor: ...

class LearnedRounding(_learned_rounding.LearnedRounding):
    """Round a weight to a grid, each entry up or down as is learned from a few inputs."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        bits: int = 4,
        per_channel: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, weight: Tensor) -> Tensor: ...

class LexicalDecision(_lexical_decision.LexicalDecision):
    """Take the likeliest form of a word that a model proposes, and leave numbers and symbols as they are."""
    def __init__(self, keep: str = "symbols", bias: float = 1.0) -> None: ...

class LexicalEvaluation(_lexical_evaluation.LexicalEvaluation):
    """Compare words as they were written, as they should be, and as they were normalized."""
    def __init__(self) -> None: ...

def lie_coordinates(g: Tensor, *, group: str = "gl2", alpha: float = 1.0) -> Tensor:
    """Turn invertible 2 by 2 matrices into the numbers of their symmetric logarithm, and an angle."""
    ...

def lie_sample(
    normal: Tensor,
    uniform: Tensor,
    *,
    group: str = "gl2",
    variance: float = 0.2,
    bound: float = 1.0,
    alpha: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Turn random numbers into 2 by 2 matrices, log-normal in the stretch and uniform in the angle, and their inverses."""
    ...

class LieBN(_liebn.LieBN):
    """Give a batch of positive definite matrices a learned mean and variance, under one of three group structures."""
    def __init__(
        self,
        n: int,
        *,
        metric: str = "AIM",
        theta: float = 1.0,
        alpha: float = 1.0,
        beta: float = 0.0,
        momentum: float = 0.1,
        eps: float = 1e-05,
        channels: int | None = None,
        karcher_steps: int = 1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class LigerAttention(_liger_attention.LigerAttention):
    """Mix softmax attention over a window with gated linear attention over the whole past, gated by the keys"""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        window: int = 64,
        rope_base: float | None = 10000.0,
        gate_normalizer: float = 16,
        ratio: float = 0.5,
        causal: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class Lightning(_lightning.Lightning):
    """Sum the values of the past with a decay of the head's own, and divide the joined heads by their root mean square."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        layer: int = 0,
        layers: int = 12,
        activation: str | None = "silu",
        lrpe: bool = False,
        norm: bool = True,
        eps: float = 1e-06,
        causal: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor: ...

class LinEAS(_lineas.LinEAS):
    """Map activations by a learned gain and shift, so that their distribution becomes another one."""
    def __init__(
        self,
        num_features: int,
        *,
        sparsity: float = 0.0,
        group_sparsity: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class LithuanianNumerals(_lithuanian_numerals.LithuanianNumerals):
    """Write numbers, dates and times in Lithuanian words, bent as the sentence asks."""
    def __init__(self) -> None: ...

def local_dimension(data: Tensor, reference: Tensor, *, k: int = 20, estimator: str = "moments") -> Tensor:
    """Estimate how fast the number of neighbours grows with their distance, around each point."""
    ...

def local_normalization_distortion(
    logits: Tensor,
    tokens: Tensor,
    *,
    mode: str,
    k: int | None = None,
    p: float | None = None,
    temperature: float | None = None,
) -> Distortion:
    """Split the probability of a text into the weight of its tokens and what normalizing at each token did to it."""
    ...

class LocalResponseNorm(_local_response_norm.LocalResponseNorm):
    """Divide each channel by a power of the mean square of the channels around it, position by position."""
    @overload
    def __init__(
        self,
        size: int,
        *,
        alpha: float = 0.0001,
        beta: float = 0.75,
        k: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        size: int,
        alpha: float = 0.0001,
        beta: float = 0.75,
        k: float = 1.0,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def loss_plane(
    point: Tensor, first: Tensor, second: Tensor, hessian: Tensor, slope: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Take a quadratic loss on the plane that two directions span at a point."""
    ...

class LowRankAttention(_low_rank_attention.LowRankAttention):
    """Sum up a text by attention of its mean to its tokens, each head's scores a product of two numbers."""
    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        activation: str = "tanh",
        out_features: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, mask: Tensor | None = None) -> Tensor: ...

def lp_dictionary(atoms: Tensor, data: Tensor, *, p: float = 3) -> tuple[Tensor, Tensor]:
    """Move orthonormal atoms to where the p-th powers of the data's codes add up to more."""
    ...

def magsac_loss(squared: Tensor, *, sigma: float, dof: int = 3, inverse: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return a robust loss of squared residuals, and its first two derivatives, as solvers of least squares take them."""
    ...

def mala(
    x: Tensor,
    noise: Tensor,
    uniform: Tensor,
    *,
    energy: str | Energy,
    step_size: float,
    steps: int = 1,
    temperature: float = 1.0,
    coefficients: Sequence[float] | None = None,
) -> Walked:
    """Walk along the force with noise, and take each step with the probability that keeps the target exact."""
    ...

class MAMEnergyLoss(_mam_energy_loss.MAMEnergyLoss):
    """Lower the energy of a model's own samples, and hold its marginals to each other."""
    def __init__(
        self,
        length: int,
        *,
        alpha: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, log_p: Tensor, energy: Tensor, consistency: Tensor, start: Tensor) -> Tensor: ...

class ManifoldKernel(_manifold_kernel.ManifoldKernel):
    """Weigh the eigenvectors of a Laplacian by how slowly they change, and return the products of their rows."""
    def __init__(
        self,
        *,
        kind: str = "matern",
        nu: float = 3.0,
        kappa: float = 4.0,
        sigma: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, y: Tensor, eigenvalues: Tensor, count: Tensor) -> Tensor: ...

class ManifoldLipschitz(_manifold_lipschitz.ManifoldLipschitz):
    """Add to a loss the squared changes of a function between points, weighted by where it is steepest."""
    def __init__(
        self,
        num_points: int,
        *,
        epsilon: float = 1.0,
        step: float = 0.01,
        radius2: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, f: Tensor, x: Tensor, data_loss: Tensor) -> Tensor: ...

def mano(logits: Tensor, *, p: float = 4, criterion: float | str = 0.0, threshold: float = 5.0) -> Tensor:
    """Normalize logits row by row, and take the mean p-norm of all entries: it goes up with accuracy."""
    ...

class MarginLogLoss(_margin_log_loss.MarginLogLoss):
    """Add to the cross-entropy the logarithm of how sure the batch is of itself."""
    def __init__(
        self, weight: float = 0.03, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, logits: Tensor, target: Tensor) -> Tensor: ...

def marginal_consistency(
    order: Tensor, index: Tensor, x: Tensor, log_p: Tensor, log_p_previous: Tensor, logits: Tensor
) -> Tensor:
    """Compare the log marginal of one more known value with that of one less and the conditional between them."""
    ...

class MeanOnlyBatchNorm(_mean_only_batchnorm.MeanOnlyBatchNorm):
    """Subtract the batch's mean from each channel, and add a learned shift."""
    def __init__(
        self,
        num_features: int,
        *,
        momentum: float | None = 0.1,
        bias: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class MeanSubtractionNorm(_mean_subtraction_norm.MeanSubtractionNorm):
    """Subtract the mean of a graph's nodes from each of them."""
    def __init__(self, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None) -> None: ...
    def __call__(self, x: Tensor, batch: Tensor | None = None) -> Tensor: ...

class MembraneBatchNorm(_membrane_batchnorm.MembraneBatchNorm):
    """Integrate the input over time, normalize the membrane potential over the batch, and spike where it is high."""
    def __init__(
        self,
        num_features: int,
        *,
        steps: int,
        decay: float = 0.25,
        threshold: float = 1.0,
        temperature: float = 3.0,
        eps: float = 1e-05,
        momentum: float = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class MinimalTransformer(_minimal_transformer.MinimalTransformer):
    """Replace every token by an average of all, by the softmax of their similarities; no feedforward part, few"""
    def __init__(
        self,
        dim: int,
        *,
        heads: int = 1,
        similarity: str = "collapsed",
        value: bool = False,
        causal: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, mask: Tensor | None = None) -> Tensor: ...

class MixLN(_mix_ln.MixLN):
    """Normalize the stream itself in the first layers, and a copy of it in the others."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int,
        depth: int,
        norm: NormName = "rmsnorm",
        attention: Sublayer,
        feedforward: Sublayer,
        alpha=0.25,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class MixStyleLayerNorm(_mixstyle_layernorm.MixStyleLayerNorm):
    """Give each frame a style's gain and shift, mixed with another sample's; in evaluation pass x on as it is."""
    def __init__(
        self,
        num_features: int,
        *,
        p: float = 0.5,
        alpha: float = 0.1,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, x: Tensor, condition: Tensor, permutation: Tensor | None = None, mix: Tensor | None = None
    ) -> Tensor: ...

class MobiusLinear(_mobius_linear.MobiusLinear):
    """Multiply points of the ball of Poincaré by a matrix, and add a bias, both in the sense of Möbius."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        c: float,
        bias_c: float | None = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class ModalityNorm(_modality_norm.ModalityNorm):
    """Normalize each token by its own statistic, then apply the gain of its modality."""
    def __init__(
        self,
        dim: int,
        *,
        modalities: int,
        norm: str = "rmsnorm",
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, modality: Tensor) -> Tensor: ...

class MotionAdaptiveNorm(_motion_adaptive_norm.MotionAdaptiveNorm):
    """Normalize each channel of each frame, then give every pixel a gain and a shift made from a motion field."""
    def __init__(
        self,
        num_features: int,
        *,
        motion_channels: int = 2,
        hidden_channels: int = 128,
        kernel_size: int = 3,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, motion: Tensor) -> Tensor: ...

class MotionLayerNorm(_motion_layernorm.MotionLayerNorm):
    """Give each vector zero mean and unit variance, then a gain and a shift made from a condition."""
    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int,
        normalize: bool = True,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, condition: Tensor) -> Tensor: ...

class MsgNorm(_msgnorm.MsgNorm):
    """Give each node's aggregated message the length of the node's own features, times a scale."""
    def __init__(
        self,
        *,
        learnable: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, message: Tensor) -> Tensor: ...

class MTARDBalance(_mtard_balance.MTARDBalance):
    """Distill two teachers at once, and keep their temperatures and losses in balance while training."""
    def __init__(
        self,
        weight_lr: float = 0.025,
        temperature_lr: float = 0.001,
        min_temperature: float = 1.0,
        max_temperature: float = 10.0,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, student_adv: Tensor, student_nat: Tensor, teacher_adv: Tensor, teacher_nat: Tensor
    ) -> Tensor: ...

class MultiAspectFusion(_multi_aspect_fusion.MultiAspectFusion):
    """Fuse several embeddings of each sample into one by attention to those that agree, and score pairs of results."""
    def __init__(
        self,
        dims: Sequence[int],
        dim: int,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, *aspects: Tensor) -> tuple[Tensor, Tensor]: ...

class Muon(_muon.Muon):
    """Bring the singular values of the momentum of each matrix near 1, then step."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = ...,
        ns_dtype: str | None = "bfloat16",
        betas: tuple[float, float] = ...,
        eps: float = 1e-10,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class NanoFlow(_nanoflow.NanoFlow):
    """Chain couplings of images that share one network, so that depth costs few parameters."""
    def __init__(
        self,
        channels: int,
        *,
        hidden: int,
        num_flows: int,
        embedding_channels: int,
        height: int,
        width: int,
        coupling: str = "affine",
        layers: int = 6,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

class NDLoss(_nd_loss.NDLoss):
    """Turn the student's features to their class's center of the teacher, and lengthen those that are too short."""
    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        loss_weight: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor, teacher_features: Tensor, target: Tensor) -> Tensor: ...

class NearestMean(_nearest_mean.NearestMean):
    """Keep the mean feature of each class, and score a sample by how near it is to each."""
    def __init__(
        self,
        num_features: int | None = None,
        num_classes: int | None = None,
        *,
        normalize: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor) -> Tensor: ...

class NeuTra(_neutra.NeuTra):
    """Pull a target back to the latent space of a flow, for any local sampler to walk there."""
    def __init__(
        self,
        flow: int | nn.Module,
        *,
        energy: str | Energy,
        temperature: float = 1.0,
        coefficients: Sequence[float] | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, z: Tensor) -> Pulled: ...

class NFBlock(_nf_block.NFBlock):
    """Add a bottleneck of standardized convolutions to the stream, scaled so that its variance is known."""
    def __init__(
        self,
        channels: int,
        *,
        out_channels: int | None = None,
        stride: int = 1,
        alpha: float = 0.2,
        beta: float = 1.0,
        bottleneck_ratio: float = 0.25,
        kernel_size: int = 3,
        activation: str = "relu",
        eps: float = 0.0001,
        se_ratio: float | None = None,
        stochdepth_rate: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class NFE(_nfe.NFE):
    """Score every entity as the tail of a fact by how near its distribution is to that of the head, moved."""
    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int,
        *,
        variant: str = "normal",
        gamma: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, head: Tensor, relation: Tensor) -> Tensor: ...

class NGPT(_ngpt.NGPT):
    """Build a layer whose stream moves on the unit sphere, a learned share of the way to what each sublayer gives."""
    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        causal: bool = True,
        base_scale=None,
        **further: Any,
    ) -> None: ...

class NGPTWeights(_ngpt_weights.NGPTWeights):
    """Divide every vector of a weight along an axis by its length."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        dim: int = 1,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class NgramCandidates(_ngram_candidates.NgramCandidates):
    """Find the ids whose names share the most, and the rarest, triples of letters with a mention."""
    def __init__(self, k: int = 100, min_df: int = 10, threshold: float = 0.0) -> None: ...

class NilDecision(_nil_decision.NilDecision):
    """Sort a mention's candidates by softmax of their logits; the last place may stand for none of them."""
    def __init__(self, nil: bool = True, allow_nil: bool = True) -> None: ...

class NKD(_nkd.NKD):
    """Compare student and teacher on the right class, and on the others normalized without it."""
    def __init__(
        self,
        temperature: float = 1.0,
        gamma: float = 1.5,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, logits: Tensor, teacher_logits: Tensor, target: Tensor) -> Tensor: ...

class NormAwareLinear(_norm_aware_linear.NormAwareLinear):
    """Raise the direction of each query to a power that grows with its length, so that long queries attend sharply."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        size: tuple[int, int] | None = None,
        eps: float = 1e-06,
        causal: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

def norm_transfer(
    features: Tensor,
    global_weight: Tensor,
    global_bias: Tensor,
    local_weight: Tensor,
    local_bias: Tensor,
    count: Tensor,
) -> Transferred:
    """Multiply a shared classifier's rows by the lengths of a client's rows, and add the client's own logits."""
    ...

class NormTweakingLoss(_norm_tweaking_loss.NormTweakingLoss):
    """Compare mean and deviation of every channel between a float block's outputs and a quantized one's."""
    def __init__(self, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None) -> None: ...
    def __call__(self, target: Tensor, x: Tensor) -> Tensor: ...

class NormalizeAndProject(_normalize_and_project.NormalizeAndProject):
    """Bring a weight back to the length that it had at the start."""
    def __init__(
        self, shape: Sequence[int], *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class NormalizedAttention(_normalized_attention.NormalizedAttention):
    """Give the scores of each query mean ``bias`` and deviation ``weight``, and sum the values by them."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        eps: float = 0.001,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class NormalizedGD(_normalized_gd.NormalizedGD):
    """Divide the gradient by its length, of all parameters or of each tensor, then step."""
    def __init__(
        self,
        params: Groups,
        lr: float = 1.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        eps: float = 1e-12,
        scope: str = "global",
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

def normalized_logistic_gd(features: Tensor, labels: Tensor, theta: Tensor, *, lr: float = 1.0) -> Tensor:
    """Step along the mean of the samples, each as much as it is doubted."""
    ...

class NormFormer(_normformer.NormFormer):
    """Build a pre-norm layer with norms behind attention and behind the activation, and a learned scale for each head."""
    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        activation: str = "gelu",
        causal: bool = True,
        scale_residual=False,
        **further: Any,
    ) -> None: ...

class NorMuon(_normuon.NorMuon):
    """Divide each row of Muon's direction by its size in the past, then step."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        beta2: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = ...,
        ns_dtype: str | None = "bfloat16",
        adjust_lr: str = "spectral",
        betas: tuple[float, float] = ...,
        eps: float = 1e-10,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class NSNQuant(_nsnquant.NSNQuant):
    """Divide each token by its size, subtract the tokens' mean, divide again, and rotate by a Hadamard matrix."""
    def __init__(
        self,
        head_dim: int,
        *,
        hadamard: str = "after",
        eps: float = 1e-08,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...

class OnlineNorm(_onlinenorm.OnlineNorm):
    """Normalize each sample by running moments of the samples before it, and control the gradient in the same way."""
    def __init__(
        self,
        num_features: int,
        *,
        forward_decay: float = 0.999,
        backward_decay: float = 0.99,
        eps: float = 1e-05,
        affine: bool = True,
        guard: str | None = "clamp",
        clamp_value: float = 5.0,
        guard_eps: float = 1e-05,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def ot_cfm(
    x0: Tensor,
    x1: Tensor,
    t: Tensor | None = None,
    noise: Tensor | None = None,
    i: Tensor | None = None,
    j: Tensor | None = None,
    *,
    sigma: float = 0.0,
    method: str = "exact",
    reg: float = 0.05,
    normalize_cost: bool = False,
) -> Velocity:
    """Pair source and data so that the ways are short, then return points on them and velocities."""
    ...

class PairNorm(_pair_norm.PairNorm):
    """Center a graph's nodes, and give them a fixed mean square length."""
    def __init__(
        self,
        *,
        scale: float = 1.0,
        mode: str = "together",
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, batch: Tensor | None = None) -> Tensor: ...

def panda_data_probability(norms: Tensor, index: Tensor, *, size: int, tau: float = 0.5) -> Tensor:
    """Return the probability to draw each sample in the next epoch: its gradient's share, mixed with an equal one."""
    ...

def panda_operation_norm(previous: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
    """Move the norms of operations by what one step has seen of them."""
    ...

def panda_path_probability(norms: Tensor, *, tau: float = 0.5) -> Tensor:
    """Return the probability to draw each operation of an edge: its gradient's share, mixed with an equal one."""
    ...

class PathGradientLoss(_path_gradient_loss.PathGradientLoss):
    """Estimate the divergence of a flow and a target, with a gradient that vanishes where they are one."""
    def __init__(
        self,
        dim: int,
        *,
        estimator: str = "path",
        energy: str | Energy | None = None,
        coefficients: Sequence[float] | None = None,
        flow: nn.Module | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, samples: Tensor) -> Tensor: ...

def pcb_merge(
    task_vectors: Tensor, *, ratio: float = 0.1, scale: float | Sequence[float] = 1.0, variant: str = "paper"
) -> Merged:
    """Average what fine-tuning changed, each parameter weighted by its own size and by what the other tasks want."""
    ...

class PCNorm(_pcnorm.PCNorm):
    """Give each channel the Fourier amplitudes of its batch norm and the phases of the raw input."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def per_class_gradient_normalization(class_grads: Tensor, *, reduction: str = "sum", eps: float = 1e-12) -> Tensor:
    """Give each class' gradient the length 1, then add them up."""
    ...

class PeriNorm(_peri_norm.PeriNorm):
    """Normalize what each sublayer reads and what it writes, and leave the stream alone."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "rmsnorm",
        attention: Sublayer,
        feedforward: Sublayer,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

def pgfed_client(
    *states: Tensor, entries: Sequence[str], lr: float, alpha_lr: float, momentum: float = 0.9, epochs: int = 1
) -> tuple[Tensor, ...]:
    """Train a personal model on its own risk and on what the server says of the others'."""
    ...

def pgfed_server(*states: Tensor, entries: Sequence[str], mu: float, momentum: float = 0.0) -> tuple[Tensor, ...]:
    """Average the clients' states, and make of their gradients what each is told of the others."""
    ...

class PHIS(_phi_s.PHIS):
    """Standardize features by a fixed linear map that was fitted beforehand, and back."""
    def __init__(
        self,
        num_features: int,
        *,
        method: str = "phi-s",
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class PhraseToNode(_phrase_to_node.PhraseToNode):
    """Map a phrase's word vectors to one vector in a fixed space, that of a taxonomy's nodes, and find the nearest."""
    def __init__(
        self,
        word_dim: int,
        node_dim: int,
        kind: str = "lstm",
        hidden: int = 300,
        k: int = 10,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, words: Tensor, lengths: Tensor) -> Tensor: ...

def pit_calibration_error(
    pit: Tensor, *, power: float = 1, method: str = "sorted", levels: int = 100, sharpness: float | None = None
) -> Tensor:
    """Measure how far the predicted distribution's values at the outcomes are from uniform."""
    ...

def pit_entropy(pit: Tensor, *, spacing: int = 64) -> Tensor:
    """Estimate the negative entropy of values in [0, 1] by the gaps between them."""
    ...

class PlacementSearch(_placement_search.PlacementSearch):
    """Mix the outputs of candidates by softmax weights with Gumbel noise, so that gradients find the best one."""
    def __init__(
        self, candidates: int, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, noise: Tensor, temperature: Tensor, *outputs: Tensor) -> Tensor: ...

def plasticity_probe(
    first: Tensor,
    second: Tensor,
    probe_first: Tensor,
    probe_second: Tensor,
    inputs: Tensor,
    *,
    steps: int = 50,
    lr: float = 0.05,
    frequency: float = 100000.0,
) -> Plasticity:
    """Train a copy of a two-layer network on a new random task, and tell how far it got."""
    ...

class PoincareConv2d(_poincare_conv2d.PoincareConv2d):
    """Take the vectors of each patch of an image, joined, through ``poincare-linear``."""
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        curvature: float = 1.0,
        id_init: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def poincare_distance_matrix(x: Tensor, y: Tensor, *, c: float) -> Tensor:
    """Return the hyperbolic distance of every point of one set to every point of another."""
    ...

class PoincareLinear(_poincare_linear.PoincareLinear):
    """Measure how far vectors, taken into the ball of Poincaré, lie from learned hyperplanes, and return to vectors."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        curvature: float = 1.0,
        id_init: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class PoincareMidpointBatchNorm(_poincare_midpoint_batchnorm.PoincareMidpointBatchNorm):
    """Give vectors of a batch, taken into the ball of Poincaré, a learned mean and variance."""
    def __init__(
        self,
        num_features: int,
        *,
        curvature: float = 1.0,
        use_midpoint: bool = True,
        eps: float = 1e-06,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class PointNorm(_point_norm.PointNorm):
    """Center each point's neighbours on the point and divide them by the sample's standard deviation."""
    def __init__(
        self,
        num_features: int,
        *,
        mean: str = "local",
        std: str = "global",
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, grouped: Tensor, anchors: Tensor) -> Tensor: ...

def polar_decomposition(g: Tensor) -> tuple[Tensor, Tensor]:
    """Split matrices into a positive definite factor and a rotation."""
    ...

class Polynormer(_polynormer.Polynormer):
    """Let every node attend to all nodes in linear time, and multiply what it gets with a linear map of itself."""
    def __init__(
        self,
        channels: int,
        *,
        heads: int = 1,
        layers: int = 2,
        beta: float = -1,
        shared: bool = True,
        eps: float = 1e-05,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def pooled_covariance(mean: Tensor, covariance: Tensor, count: Tensor) -> Pooled:
    """Join the clients' means and covariances into those of all their samples, exactly."""
    ...

class PostNorm(_post_norm.PostNorm):
    """Normalize the stream after each sublayer has been added to it."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        attention: Sublayer,
        feedforward: Sublayer,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class PowerNorm(_powernorm.PowerNorm):
    """Divide each feature by a running root mean square over all tokens of the batch."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        alpha_fwd: float = 0.9,
        alpha_bkw: float = 0.9,
        warmup_iters: int = 10000,
        group_num: int = 1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor: ...

class PreNorm(_pre_norm.PreNorm):
    """Add to the stream what each sublayer makes of a normalized copy of it."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        attention: Sublayer,
        feedforward: Sublayer,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class PrenormalizedLayerNorm(_prenormalized_layernorm.PrenormalizedLayerNorm):
    """LayerNorm computed in the input's own precision without overflow."""
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def principal_gradient(*updates: Tensor, entries: Sequence[str], share: float = 0.8) -> tuple[Tensor, ...]:
    """Keep of each client's update the directions that most clients share, then take the mean."""
    ...

class PSKD(_ps_kd.PSKD):
    """Mix each sample's label with the model's own prediction of it an epoch ago, ever more of it."""
    def __init__(
        self,
        num_samples: int,
        num_classes: int,
        *,
        epochs: int,
        alpha: float = 0.8,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, logits: Tensor, target: Tensor, index: Tensor, epoch: int | Tensor) -> Tensor: ...

class QKNorm(_qk_norm.QKNorm):
    """Normalize each head's queries and keys before their product, so that no score can outgrow a learned bound."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        norm: str = "l2",
        length: float | None = None,
        scale: float | None = None,
        eps: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class QKNormLayer(_qk_norm_layer.QKNormLayer):
    """Build a pre-norm layer that also normalizes each head's queries and keys, which bounds every score."""
    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        activation: str = "gelu",
        causal: bool = True,
        **further: Any,
    ) -> None: ...

class QKVNorm(_qkv_norm.QKVNorm):
    """Normalize each head's queries, keys and values, so that a block needs no norm in front of its attention."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        norm: str = "rmsnorm",
        eps: float = 1e-05,
        rope_base: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

def quantile_recalibration(
    calibration: Tensor, pit: Tensor, *, map: str = "empirical", sharpness: float = 100.0
) -> Tensor:
    """Map the values of predicted distribution functions to the share of held-out data that lay below them."""
    ...

class RadiusScaling(_radius_scaling.RadiusScaling):
    """Multiply points of the ball of Poincaré by a matrix of blocks, which scales their distances to the origin."""
    def __init__(
        self,
        dim: int,
        *,
        blocks: int = 1,
        c: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class RankCalibrationLoss(_rank_calibration_loss.RankCalibrationLoss):
    """Ask that a better output be likelier than a worse one, by a margin that grows with how far they are apart."""
    def __init__(
        self,
        margin: float = 0.001,
        scale: float = 0.01,
        length_penalty: float = 1.0,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, logits: Tensor, labels: Tensor, gold_logits: Tensor | None = None, gold_labels: Tensor | None = None
    ) -> Tensor: ...

class RankRegularizedLoss(_rank_regularized_loss.RankRegularizedLoss):
    """Cross-entropy of a mention's candidates, and the distance of their logits to the scores that they came with."""
    def __init__(
        self,
        weight: float = 1.0,
        label_smoothing: float = 0.0,
        softmax: bool = True,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, logits: Tensor, labels: Tensor, scores: Tensor) -> Tensor: ...

class RationalQuadraticSpline(_rational_quadratic_spline.RationalQuadraticSpline):
    """Bend each number by a monotone curve of K pieces, each a quotient of two quadratics."""
    def __init__(
        self,
        num_bins: int,
        *,
        tails: str | None = None,
        tail_bound: float = 1.0,
        left: float = 0.0,
        right: float = 1.0,
        bottom: float = 0.0,
        top: float = 1.0,
        min_bin_width: float = 0.001,
        min_bin_height: float = 0.001,
        min_derivative: float = 0.001,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, widths: Tensor, heights: Tensor, derivatives: Tensor) -> tuple[Tensor, Tensor]: ...

class ReconstructionLoss(_reconstruction_loss.ReconstructionLoss):
    """Compare the outputs of a quantized layer with those of the float one, perhaps weighted by a task's gradient."""
    def __init__(
        self,
        *,
        mode: str = "mse",
        power: float = 2.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, y: Tensor, target: Tensor, gradient: Tensor | None = None) -> Tensor: ...

class RegionNormBasic(_regionnorm_basic.RegionNormBasic):
    """Normalize the valid and the corrupted pixels of a batch apart, each region by its own mean and deviation."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, mask: Tensor) -> Tensor: ...

class RegionNormLearnable(_regionnorm_learnable.RegionNormLearnable):
    """Split an image by a learned saliency map, normalize both regions apart, modulate them with maps of the saliency."""
    def __init__(
        self,
        num_features: int,
        *,
        threshold: float = 0.8,
        kernel_size: int = 7,
        eps: float = 1e-05,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def regularized_relevance_reward(
    relevance: Tensor,
    tokens: Tensor,
    length: Tensor,
    constrained: Tensor | None = None,
    *,
    max_length: int = 512,
    length_incentive: bool = True,
    repetition_penalty: bool = True,
    relevance_scaling: bool = True,
) -> Tensor:
    """Multiply the relevance of a response by its length and by how little it repeats itself."""
    ...

def relative_representations(
    x: Tensor, anchors: Tensor, *, norm: str | None = "l2", similarity: str = "inner"
) -> Tensor:
    """Describe each point by its cosines to a set of anchors."""
    ...

class RelevanceDecay(_relevance_decay.RelevanceDecay):
    """Add to each gradient a decay of its weight, the weaker the larger the gradient is."""
    def __init__(
        self,
        params: Groups,
        *,
        base: str = "sgd",
        lr: float,
        gamma: float = 1e-05,
        alpha: float = 1.0,
        decay_steps: int | None = None,
        maximize: bool = False,
        **base_options: Any,
    ) -> None: ...

class RelevancePenalty(_relevance_penalty.RelevancePenalty):
    """Penalize the square of each weight by how little the loss depends on it."""
    def __init__(
        self,
        *,
        gamma: float = 1e-05,
        alpha: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, weight: Tensor, gradient: Tensor) -> Tensor: ...

class Repair(_repair.Repair):
    """Give each channel a goal mean and a goal standard deviation, from the mean and variance of all batches seen."""
    def __init__(
        self,
        num_features: int,
        *,
        variant: str = "repair",
        eps: float = 1e-05,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class ResPostNorm(_res_post_norm.ResPostNorm):
    """Normalize what each sublayer writes, and neither what it reads nor the stream."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        attention: Sublayer,
        feedforward: Sublayer,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

def residual_ebm_bounds(energy: Tensor) -> Bounds:
    """Bound the log-normalizer log E[exp(-E)] of a residual energy model from below and above by n samples."""
    ...

def residual_ebm_loss(real_energy: Tensor, fake_energy: Tensor) -> Tensor:
    """Teach an energy to be low on real texts and high on a frozen language model's own."""
    ...

def residual_ebm_resample(energy: Tensor, uniform: Tensor) -> Resampled:
    """Take one of n samples of the language model, with the probability of exp(-energy)."""
    ...

class ResidualScaling(_residual_scaling.ResidualScaling):
    """Add each sublayer to the stream with one constant weight, and normalize nothing."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int,
        attention: Sublayer,
        feedforward: Sublayer,
        scaling="inverse",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class RetrievalMeasures(_retrieval_measures.RetrievalMeasures):
    """Measure ranked ids against the right ones: accuracy, recall, precision, nDCG at k, MRR, and F1 of "none"."""
    def __init__(self, k: Sequence[int] = ...) -> None: ...

class ReverseAlignmentLoss(_reverse_alignment_loss.ReverseAlignmentLoss):
    """Draw features of a flow, taken on the way from latents to data, to frozen features of the data."""
    def __init__(
        self,
        dim: int,
        target_dim: int,
        *,
        hidden: int = 1024,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor, targets: Tensor) -> Tensor: ...

class ReversePointNorm(_reverse_point_norm.ReversePointNorm):
    """Center each point on its neighbours' mean and divide it by the sample's standard deviation."""
    def __init__(
        self,
        num_features: int,
        *,
        mean: str = "local",
        std: str = "global",
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, grouped: Tensor, anchors: Tensor) -> Tensor: ...

class RevIN(_revin.RevIN):
    """Center and scale each series of a sample by its own moments over time; :meth:`denormalize` brings them back."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        affine: bool = True,
        center: str = "mean",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class RewardTransform(_reward_transform.RewardTransform):
    """Turn each reward into the logarithm of the chance to beat a reference, and add up those of a response."""
    def __init__(
        self,
        mode: str = "log_sigmoid",
        weights: Sequence[float] | None = None,
        quantile: float = 0.85,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, rewards: Tensor, reference: Tensor) -> Tensor: ...

class RiemannianBatchNorm(_riemannian_batchnorm.RiemannianBatchNorm):
    """Move a batch of positive definite matrices along the manifold, from its affine-invariant mean to a learned one."""
    def __init__(
        self,
        n: int,
        *,
        momentum: float = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class RMSNorm(_rmsnorm.RMSNorm):
    """Divide each vector by its root mean square and multiply by a learned gain."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-06,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int | Sequence[int],
        eps: float | None = 1e-06,
        affine: bool = True,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int | Sequence[int],
        eps: float | None = 1e-06,
        *,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        bias: bool = False,
        *,
        p: float = 1.0,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

LlamaRMSNorm = RMSNorm
MistralRMSNorm = RMSNorm
Qwen2RMSNorm = RMSNorm
Qwen3RMSNorm = RMSNorm
DeepseekV3RMSNorm = RMSNorm
T5LayerNorm = RMSNorm

class GemmaRMSNorm(RMSNorm):
    """RMSNorm with offset=1.0."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-06,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int | Sequence[int],
        eps: float | None = 1e-06,
        affine: bool = True,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int | Sequence[int],
        eps: float | None = 1e-06,
        *,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        bias: bool = False,
        *,
        p: float = 1.0,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class Gemma2RMSNorm(RMSNorm):
    """RMSNorm with offset=1.0."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-06,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int | Sequence[int],
        eps: float | None = 1e-06,
        affine: bool = True,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int | Sequence[int],
        eps: float | None = 1e-06,
        *,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        bias: bool = False,
        *,
        p: float = 1.0,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class Gemma3RMSNorm(RMSNorm):
    """RMSNorm with offset=1.0."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-06,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int | Sequence[int],
        eps: float | None = 1e-06,
        affine: bool = True,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int | Sequence[int],
        eps: float | None = 1e-06,
        *,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        bias: bool = False,
        *,
        p: float = 1.0,
        offset: float = 1.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class Olmo2RMSNorm(RMSNorm):
    """RMSNorm with cast='late'."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-06,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "late",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "late",
        gain_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int | Sequence[int],
        eps: float | None = 1e-06,
        affine: bool = True,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "late",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int | Sequence[int],
        eps: float | None = 1e-06,
        *,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "late",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = True,
        bias: bool = False,
        *,
        p: float = 1.0,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "late",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class Llama4TextL2Norm(RMSNorm):
    """RMSNorm with affine=False."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-06,
        p: float = 1.0,
        affine: bool = False,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int | Sequence[int],
        eps: float | None = 1e-06,
        affine: bool = False,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int | Sequence[int],
        eps: float | None = 1e-06,
        *,
        p: float = 1.0,
        affine: bool = False,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = False,
        bias: bool = False,
        *,
        p: float = 1.0,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class DeepseekV4UnweightedRMSNorm(RMSNorm):
    """RMSNorm with affine=False, cast='factor'."""
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-06,
        p: float = 1.0,
        affine: bool = False,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "factor",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "factor",
        gain_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int | Sequence[int],
        eps: float | None = 1e-06,
        affine: bool = False,
        *,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "factor",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        hidden_size: int | Sequence[int],
        eps: float | None = 1e-06,
        *,
        p: float = 1.0,
        affine: bool = False,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "factor",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-06,
        elementwise_affine: bool = False,
        bias: bool = False,
        *,
        p: float = 1.0,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "factor",
        gain_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class RMSNorm2d(_rmsnorm2d.RMSNorm2d):
    """Divide the channels at each position by their root mean square and multiply by a learned gain."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-06,
        affine: bool = True,
        bias: bool = False,
        eps_floor: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int,
        eps: float = 1e-06,
        affine: bool = True,
        *,
        bias: bool = False,
        eps_floor: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class PixelNorm(RMSNorm2d):
    """RMSNorm2d with affine=False, eps=1e-08."""
    @overload
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-08,
        affine: bool = False,
        bias: bool = False,
        eps_floor: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int,
        eps: float = 1e-08,
        affine: bool = False,
        *,
        bias: bool = False,
        eps_floor: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class RNoPE(_rnope.RNoPE):
    """Attend with rotary positions to a window, or, in the last layer of each period, without positions to all."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        layer: int,
        period: int = 4,
        window: int = 4096,
        rope_base: float = 10000.0,
        causal: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

def rotation_residual(
    rotation1: Tensor, rotation2: Tensor, relative: Tensor, covariance: Tensor | None = None
) -> Tensor:
    """Return the rotation vector that is left between two rotations and the measured one from the first to the second."""
    ...

class RoundingRegularizer(_rounding_regularizer.RoundingRegularizer):
    """Penalize weights that are neither rounded down nor up."""
    def __init__(
        self,
        *,
        beta: float = 10.0,
        weight: float = 0.001,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, alpha: Tensor) -> Tensor: ...

class SAWN(_sawn.SAWN):
    """Normalize each channel, then give every pixel a gain and a shift fetched from a style along a flow."""
    def __init__(
        self,
        num_features: int,
        *,
        kernel_size: int = 5,
        hidden_channels: int = 128,
        norm: str = "instance",
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, style: Tensor, flow: Tensor, mask: Tensor | None = None) -> Tensor: ...

class ScaledWeightStandardization(_scaled_weight_standardization.ScaledWeightStandardization):
    """Give each filter mean 0 and length 1, then multiply it by a learned gain."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        gamma: float = 1.0,
        eps: float = 0.0001,
        eps_mode: str = "clamp",
        gain_init: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class ScaleNorm(_scalenorm.ScaleNorm):
    """Give every vector the same learned length."""
    @overload
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        dim: int,
        eps: float = 1e-05,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SCNorm(_scnorm.SCNorm):
    """Replace each channel's Fourier amplitudes by a learned mix of raw and instance-normalized ones."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        channels_last: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def score_normalization(
    similarity: Tensor, background: Tensor, *, rank: int = 10, factor: float = 2.0, reduction: str = "min"
) -> Tensor:
    """Subtract from each score how near the query comes to things that are no match."""
    ...

class SDDLinear(_sdd_linear.SDDLinear):
    """Map linearly, then divide the result by its root mean square: the weight only turns, a gain says how large."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = False,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SELU(_selu.SELU):
    """Multiply positive numbers by 1.05, and bend negative ones towards -1.76."""
    def __init__(self, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SGDP(_sgdp.SGDP):
    """Take a step along the momentum, less its share along the weight where the weight's length does not matter."""
    def __init__(
        self,
        params: Groups,
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        eps: float = 1e-08,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class ShiftQuant(_shiftquant.ShiftQuant):
    """Round to few bits, each channel with one of a few scales that are powers of two apart."""
    def __init__(
        self,
        num_channels: int,
        *,
        bits: int = 4,
        num_groups: int = 4,
        stochastic: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def shuffling_distortion(
    x: Tensor, y: Tensor, orders: Tensor, *, batch_size: int = 4, eps: float = 1e-05
) -> ShufflingDistortion:
    """Measure how far normalizing batch by batch moves the least-squares optimum."""
    ...

class SigmaReparam(_sigma_reparam.SigmaReparam):
    """Divide a weight by its largest singular value, and multiply it by a learned number."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        gamma_init: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class SigmoidLoss(_sigmoid_loss.SigmoidLoss):
    """Ask of every pair of image and text whether they belong together, without a softmax over the batch."""
    def __init__(
        self,
        *,
        scale: float = 10.0,
        bias: float = -10.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, image: Tensor, text: Tensor) -> Tensor: ...

class SimFlowObjective(_simflow_objective.SimFlowObjective):
    """Train encoder, decoder and a flow of the latents at once: the noise in the latents keeps one variance."""
    def __init__(
        self,
        flow: int | nn.Module,
        *,
        decoder: int | nn.Module,
        variance: float = 0.5,
        weight: float = 1.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, mean: Tensor, noise: Tensor) -> EvidenceBound: ...

class SimpleNorm(_simplenorm.SimpleNorm):
    """Divide each vector by its standard deviation, without centering it, and multiply by a learned gain."""
    @overload
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-06,
        affine: bool = True,
        channels_last: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int,
        eps: float = 1e-06,
        affine: bool = True,
        *,
        channels_last: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SimpleNorm2d(SimpleNorm):
    """SimpleNorm with channels_last=False."""
    @overload
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-06,
        affine: bool = True,
        channels_last: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        channels: int,
        eps: float = 1e-06,
        affine: bool = True,
        *,
        channels_last: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SimplexClassifier(_simplex_classifier.SimplexClassifier):
    """Score classes by the product of the features with the corners of a regular simplex."""
    def __init__(
        self, num_classes: int, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SinkGD(_sinkgd.SinkGD):
    """Make the rows of a gradient equally long, then its columns, a few times over; keep no state."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.001,
        num_iters: int = 5,
        scale: float = 1.0,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = ...,
        eps: float = 1e-08,
        use_adam: bool = False,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class SkipInit(_skipinit.SkipInit):
    """Add each sublayer to the stream with a learned weight that starts at 0, and normalize nothing."""
    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int = 1,
        attention: Sublayer,
        feedforward: Sublayer,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, **arguments: Any) -> Tensor: ...

class SmoothMixture(_smooth_mixture.SmoothMixture):
    """Bend each number of [0, 1] by a mixture of smooth steps."""
    def __init__(
        self,
        components: int,
        *,
        periodic: bool = True,
        ramp: str = "type1",
        min_density: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, x: Tensor, mean: Tensor, log_scale: Tensor, alpha: Tensor, logits: Tensor
    ) -> tuple[Tensor, Tensor]: ...

def snnk_exponential(
    x: Tensor, projection: Tensor, scale: Tensor, gain: Tensor, *, normalize: bool = False, radius: float | None = None
) -> Tensor:
    """Return random exponential features, whose products estimate exp(a b x . w)."""
    ...

class SNNKReLU(_snnk_relu.SNNKReLU):
    """Replace a layer relu(W x) by a product of features of the input with trained ones."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_features: int,
        *,
        floor: float = 0.0,
        normalize: bool = False,
        radius: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class Softmax(_softmax.Softmax):
    """Turn each query's scores into probabilities over the keys it sees, and average the values by them."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class SoftmaxFree(_softmax_free.SoftmaxFree):
    """Weigh values by a Gaussian kernel of the tokens' distances, through a few landmarks and an iterated inverse."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        size: tuple[int, int],
        ratio: int,
        norm: str | None = None,
        kernel_size: int | None = None,
        max_iter: int = 20,
        sync: bool = False,
        process_group=None,
        causal: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class SoftplusAttention(_softplus_attention.SoftplusAttention):
    """Turn scores into weights by softplus and division by their sum, with a scale that grows with the keys seen."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = True,
        power: float | None = None,
        free_rows: int = 3,
        eps: float = 1e-12,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class SPADE(_spade.SPADE):
    """Normalize each channel, then give every pixel a gain and a shift made from a segmentation map."""
    def __init__(
        self,
        num_features: int,
        *,
        label_channels: int,
        hidden_channels: int = 128,
        kernel_size: int = 3,
        norm: str = "instance",
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, segmap: Tensor) -> Tensor: ...

class SpanSubtypeClassifier(_span_subtype_classifier.SpanSubtypeClassifier):
    """Classify spans by the maximum of their tokens, the first token and their length, then each by subtypes."""
    def __init__(
        self,
        hidden: int,
        entity_types: int,
        subtypes: Mapping[str, int],
        size_dim: int = 25,
        max_size: int = 100,
        subtype_input: str = "logits",
        adjacent: bool = False,
        dropout: float = 0.1,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, h: Tensor, masks: Tensor, sizes: Tensor) -> tuple[Tensor, ...]: ...

class SparseETFClassifier(_sparse_etf_classifier.SparseETFClassifier):
    """Score classes by the product of the features with fixed vectors, far apart, of one length, with many zeros."""
    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        sparsity: float = 0.6,
        norm: float = 0.1,
        steps: int = 10000,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SpectralNorm(_spectral_norm.SpectralNorm):
    """Divide a weight by its largest singular value, which one step of power iteration a pass follows."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        n_power_iterations: int = 1,
        dim: int = 0,
        eps: float = 1e-12,
        variant: str = "torch",
        factor: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class SpectralRegularizer(_spectral_regularizer.SpectralRegularizer):
    """Penalize the distance of a weight's largest singular value from 1, and the size of its bias."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        k: int = 2,
        n_power_iterations: int = 1,
        eps: float = 1e-12,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...

class SRMSNorm(_srmsnorm.SRMSNorm):
    """Divide each vector by its root mean square; nothing is learned."""
    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class StableSPAM(_stable_spam.StableSPAM):
    """Clip each gradient's largest entries, give it the length that its past ones had, then take Adam's step."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.001,
        betas: tuple[float, float] = ...,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        gamma1: float = 0.7,
        gamma2: float = 0.9,
        gamma3: float = 0.999,
        total_T: int | None = None,
        eta_min: float = 0.5,
        update_proj_gap: int = 1000,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class StainNorm(_stain_norm.StainNorm):
    """Recolour a tissue image so that its stains, or its mean colour and contrast, are those of a reference image."""
    def __init__(
        self,
        *,
        method: str = "macenko",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, image: Tensor) -> Tensor: ...

def stochastic_flow_langevin(
    x: Tensor,
    v: Tensor,
    noise: Tensor | None = None,
    *,
    energy: str | Energy,
    kind: str = "overdamped",
    steps: int = 1,
    step_size: float = 0.01,
    mass: float = 1.0,
    gamma: float = 1.0,
    temperature: float = 1.0,
    coefficients: Sequence[float] | None = None,
) -> Overdamped | Underdamped:
    """Move samples along the force with noise, and return what the moves do to their log density."""
    ...

def stochastic_flow_metropolis(
    x: Tensor,
    noise: Tensor,
    uniform: Tensor,
    *,
    energy: str | Energy,
    steps: int = 1,
    step_size: float = 0.01,
    coefficients: Sequence[float] | None = None,
) -> Jumped:
    """Try random moves, keep those that the energy allows, and return what they do to the log density."""
    ...

class StormFeatures(_storm_features.StormFeatures):
    """Describe each sample by its loss and confidence over passes with dropout, and by where they lie in its class."""
    def __init__(
        self,
        num_classes: int,
        *,
        window: int = 1,
        batch_size: int,
        separate: bool = True,
        categories: bool = True,
        agreement: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, losses: Tensor, logits: Tensor, target: Tensor) -> Tensor: ...

def storm_loss(losses: Tensor, weights: Tensor, *, normalize: bool = True) -> Tensor:
    """Multiply each loss by its weight, then all by one number, so that they sum to what they did before."""
    ...

def storm_meta_loss(
    weight: Tensor,
    x: Tensor,
    target: Tensor,
    weights: Tensor,
    x_meta: Tensor,
    target_meta: Tensor,
    weights_meta: Tensor,
    *,
    lr: float,
    normalize: bool = True,
) -> Tensor:
    """Step a linear classifier on weighted losses, and return its weighted loss on another batch."""
    ...

class StormRescaler(_storm_rescaler.StormRescaler):
    """Turn the features of each sample's losses into a weight between 0 and 1, a net for each class."""
    def __init__(
        self,
        num_features: int = 19,
        num_classes: int | None = None,
        *,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor, target: Tensor | None = None) -> Tensor: ...

class SubSpectralNorm(_subspectralnorm.SubSpectralNorm):
    """Normalize each band of frequencies of each channel by moments of its own."""
    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 16,
        affine: str = "sub",
        norm: str = "batch",
        dim: int = 2,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def subtb_loss(log_pf: Tensor, log_pb: Tensor, log_flow: Tensor, *, decay: float = 2.0, dim: int = 1) -> Tensor:
    """Weigh how far each piece of a trajectory is from balance, the long pieces most."""
    ...

class SWAN(_swan.SWAN):
    """Normalize the rows of a gradient, then whiten them; keep no state."""
    def __init__(
        self,
        params: Groups,
        lr: float = 0.001,
        center: bool = True,
        rescale: bool = True,
        scale: float = 1.0,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = ...,
        eps: float = 1e-08,
        use_adam: bool = False,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None: ...

class SwitchableNorm(_switchable_norm.SwitchableNorm):
    """Normalize with a learned mixture of the instance's, the layer's and the batch's mean and variance."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        batch: bool = True,
        vectors: bool = False,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class SwitchNorm1d(SwitchableNorm):
    """SwitchableNorm with vectors=True."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        batch: bool = True,
        vectors: bool = True,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

SwitchNorm2d = SwitchableNorm
SwitchNorm3d = SwitchableNorm

class SymbolicForest(_symbolic_forest.SymbolicForest):
    """Cut a text at the variants of known words, longest first, and put each word's representative there."""
    def __init__(self, entries: Sequence[tuple[str, str, Sequence[str]]]) -> None: ...

class TableNormalization(_table_normalization.TableNormalization):
    """Bring the header and the cells of a table into a form that SQL can ask, and take it apart for a language model."""
    def __init__(self) -> None: ...

class TailAdaptiveBase(_tail_adaptive_base.TailAdaptiveBase):
    """Return the log density of independent margins, light ones Gaussian and heavy ones Student's t."""
    def __init__(
        self,
        dim: int,
        *,
        tail_index: Sequence[float],
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

def tail_index(x: Tensor, *, method: str = "hill") -> Tensor:
    """Estimate the index of a tail from the k largest values, for each k."""
    ...

class TailLU(_tail_lu.TailLU):
    """Mix light-tailed coordinates among themselves, and heavy-tailed ones with all."""
    def __init__(
        self,
        features: int,
        *,
        num_heavy: int,
        eps: float = 0.001,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

def tangent_normalization(
    attributes: Tensor,
    image: Tensor,
    relevance: Tensor,
    *,
    beta: float = 0.5,
    direction: str = "increase",
    norm_factor: str | None = "score",
    ridge: float = 0.001,
) -> Tensor:
    """Join kernels in the tangent space of positive definite matrices, where each is first given the same norm."""
    ...

class TarFlowBlock(_tarflow_block.TarFlowBlock):
    """Scale and shift each token by a causal transformer of the tokens before it."""
    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        num_patches: int,
        num_layers: int = 1,
        head_dim: int = 64,
        expansion: int = 4,
        nvp: bool = True,
        num_classes: int = 0,
        permutation: str = "identity",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

class TensorMinMaxNorm(_tensor_minmax_norm.TensorMinMaxNorm):
    """Bring all entries of a tensor into [0, 1] by its smallest and its largest one."""
    def __init__(
        self,
        *,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class TestBatchRenorm(_test_batch_renorm.TestBatchRenorm):
    """Normalize by the running statistics, but let gradients flow as through the batch's own."""
    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-05,
        momentum: float = 0.1,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class TLEGLayerNorm(_tleg_layernorm.TLEGLayerNorm):
    """Give each vector zero mean and unit variance; gain and shift move on a straight line as the layer goes deeper."""
    def __init__(
        self,
        dim: int,
        *,
        layer: int,
        depth: int,
        eps: float = 1e-05,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class TLEGLinear(_tleg_linear.TLEGLinear):
    """Map linearly with weights that move on a straight line as the layer goes deeper."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        layer: int,
        depth: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class TLU(_tlu.TLU):
    """Cut each channel off at a learned threshold."""
    def __init__(
        self, num_features: int, *, device: torch.device | str | int | None = None, dtype: torch.dtype | None = None
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class TOFlow(_to_flow.TOFlow):
    """Carry each sample along a velocity field for a learned time."""
    def __init__(
        self,
        dim: int,
        *,
        hidden: int = 64,
        method: str = "rk4",
        steps: int = 8,
        end_time: float = 1.0,
        band: float = 0.5,
        alpha: float = 0.0,
        anchor: float | None = None,
        tolerance: float = 1e-06,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

def to_poincare(x: Tensor, *, c: float, clip: float | None = None, riemannian: bool = False) -> Tensor:
    """Take features as tangent vectors at the origin, and return the points of the ball that they lead to."""
    ...

class TPE2D(_tpe_2d.TPE2D):
    """Attend twice, with a table's tokens in the order of its rows and of its columns, and let each head choose."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        inner: int | None = None,
        base: float = 10000.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, rows: Tensor, columns: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]: ...

class TransformerLayer(_transformer_layer.TransformerLayer):
    """Let positions read each other, then think by themselves, on a residual stream wired by a placement's name."""
    def __init__(
        self,
        *,
        placement: str,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        activation: str = "gelu",
        causal: bool = True,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        core: str = "softmax",
        core_options: Mapping[str, Any] | None = None,
        query_key_norm: str | None = None,
        window: int | None = None,
        rotary: str = "halves",
        bias: bool | str = False,
        linear: LinearName = "linear",
        cross: str | None = None,
        cross_options: Mapping[str, Any] | None = None,
        other_depth: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None: ...
    def __call__(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        angles: Turns | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor: ...

class TransNormer(_transnormer.TransNormer):
    """Sum the values by activated products of queries and keys, and divide the joined heads by their root mean square."""
    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        activation: str | None = "1+elu",
        norm: str = "simple",
        eps: float = 1e-08,
        block: int | None = None,
        softmax: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

def transport_quality(log_weight: Tensor, log_weight_target: Tensor) -> Quality:
    """Tell from importance weights how often a chain would move, and how many of its samples count."""
    ...

class TypoNoise(_typo_noise.TypoNoise):
    """Make one typing error in a word: a letter repeated, left out, swapped, changed for a neighbour's, or put in."""
    def __init__(self) -> None: ...

class UnifiedNorm(_unifiednorm.UnifiedNorm):
    """Divide each feature by the geometric mean of its last few batches' mean squares."""
    def __init__(
        self,
        channels: int,
        *,
        window_size: int | tuple[int, int] = 4,
        warmup_iters: int = 4000,
        outlier_filtration: bool = False,
        eps: float = 1e-05,
        momentum: float = 0.9,
        sync: bool = False,
        process_group=None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor: ...

class UnlikelihoodCalibrationLoss(_unlikelihood_calibration_loss.UnlikelihoodCalibrationLoss):
    """Measure how likely the words of good outputs are, and how unlikely those of bad ones."""
    def __init__(
        self,
        positives: int | None = None,
        smoothing: float = 0.1,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]: ...

def unselectable_keys(keys: Tensor, *, bound: float = 100.0, tolerance: float = 1e-06) -> Tensor:
    """Find the keys that never get the highest score, whatever the query: True where a key is one of them, (n,)."""
    ...

class USKD(_uskd.USKD):
    """Make soft labels of the classifier's own confidence and of a ranking of the wrong classes."""
    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        alpha: float = 1.0,
        beta: float = 0.1,
        mu: float = 0.005,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, features: Tensor, logits: Tensor, target: Tensor) -> Tensor: ...

def vector_diffusion(
    x: Tensor, connection_laplacian: Tensor, laplacian: Tensor, *, t: float, normalize: bool = True
) -> Tensor:
    """Diffuse vectors by the heat of their connection Laplacian, and give them the lengths that heat gives to lengths."""
    ...

class WassersteinInitRegularizer(_wasserstein_init_regularizer.WassersteinInitRegularizer):
    """Penalize the distance between the distribution of a tensor's entries and the one that it began with."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        reduction: str = "sum",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, weight: Tensor) -> Tensor: ...

class WDScaling(_wd_scaling.WDScaling):
    """Carry a learning rate and a weight decay of AdamW over from one width to another."""
    def __init__(
        self,
        width: int,
        *,
        base_width: int,
        lr: float,
        weight_decay: float,
        vector_like: Sequence[str | type[nn.Module]] = ...,
    ) -> None: ...

class WeightCompander(_weight_compander.WeightCompander):
    """Bend each entry of a weight by an arctangent, so that none leaves a range and small ones move faster."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        a: float = 1.0,
        b: float = 1.0,
        learnable: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class WeightConditioning(_weight_conditioning.WeightConditioning):
    """Divide each row of a weight by its length."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        mode: str = "row",
        eps: float = 1e-12,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class WeightNorm(_weight_norm.WeightNorm):
    """Divide each slice of a raw weight by its length, and multiply it by a learned one."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        dim: int | None = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class WeightStandardization(_weight_standardization.WeightStandardization):
    """Subtract each filter's mean, and divide by its standard deviation."""
    def __init__(
        self,
        shape: Sequence[int],
        *,
        eps: float = 1e-05,
        unbiased: bool = True,
        eps_inside: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, raw: Tensor) -> Tensor: ...

class WideNet(_widenet.WideNet):
    """Pass the stream ``depth`` times through the same two sublayers, each pass with norms of its own."""
    def __init__(
        self,
        *,
        dim: int,
        depth: int,
        norm: NormName = "layernorm",
        attention: Sublayer,
        feedforward: Sublayer,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...

class ZeroMeanLinear(_zero_mean_linear.ZeroMeanLinear):
    """Center a linear layer's weight and bias over the outputs, so that every output vector has mean zero."""
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
    def __call__(self, x: Tensor) -> Tensor: ...
